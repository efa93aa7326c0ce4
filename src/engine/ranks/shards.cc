#include "src/engine/ranks/shards.h"

#include <algorithm>
#include <vector>

#include "src/base/error.h"
#include "src/checkpoint/sparse/holes.h"

namespace canopy {

namespace {

/// Throws Error where bytes that the sweep reads were never written.
void require_written(const SweepLayout& sweep) {
  const TensorEntry& table = sweep.embedding;
  std::vector<std::vector<TensorEntry>> of_file(sweep.files.size());
  of_file[static_cast<std::size_t>(table.file)].push_back(table);
  const auto add = [&](const TensorEntry& tensor) {
    const bool in_table = tensor.file == table.file && tensor.offset >= table.offset &&
                          tensor.offset < table.offset + table.bytes;  // the head, of some models
    if (!in_table) of_file[static_cast<std::size_t>(tensor.file)].push_back(tensor);
  };
  for (const UnitLayout& unit : sweep.units) {
    for (const UnitTensor& matrix : unit.matrices) add(matrix.tensor);
    for (const UnitTensor& vector : unit.vectors) add(vector.tensor);
  }
  for (std::size_t i = 0; i < of_file.size(); ++i) {
    std::ranges::sort(of_file[i], {}, &TensorEntry::offset);
    in_context("looking for the rows of this rank in " + sweep.files[i].string(),
               [&] { refuse_holes(sweep.files[i], of_file[i]); });
  }
}

}  // namespace

void check_shard(const Checkpoint& target, const SweepLayout& sweep, const Cluster* cluster) {
  const std::optional<ShardLabel>& label = target.shard();
  if (!label) return;
  const Share share = cluster ? cluster->share() : Share();
  const ShardLabel due{share.rank, share.parts, share.block, label->fingerprint};
  if (*label != due)
    throw Error(target.root().string() + " has " + in_words(*label) + ", and this process wants " +
                in_words(due) + ": give each rank the directory that canopy shard wrote for it");
  require_written(sweep);
}

}  // namespace canopy
