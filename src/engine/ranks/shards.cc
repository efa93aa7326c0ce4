#include "src/engine/ranks/shards.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/fingerprint.h"
#include "src/checkpoint/sparse/holes.h"
#include "src/checkpoint/sparse/shard_rows.h"

namespace canopy {

namespace {

constexpr std::string_view kCopyAgain =
    "it was not copied whole: copy the file again, with its holes (cp --sparse=always, tar -S, "
    "rsync -S), or write the directory anew with canopy shard";

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
  for (const ExpertLayout& expert : sweep.experts)
    for (const UnitTensor& matrix : expert.matrices) add(matrix.tensor);
  for (std::size_t i = 0; i < of_file.size(); ++i) {
    std::ranges::sort(of_file[i], {}, &TensorEntry::offset);
    in_context("looking for the rows of this rank in " + sweep.files[i].string(),
               [&] { refuse_holes(sweep.files[i], of_file[i], kCopyAgain); });
  }
}

/// Throws Error where a matrix has other rows than those that were written for this rank: a copy
/// may have zeros in place of holes, and they look like weights.
void require_own_rows(const Checkpoint& target, const Share& share) {
  const std::map<std::string, std::string> written = read_shard_rows(target.root());
  const auto found = digits_of_rows(target, [&](std::int64_t total) {
    const RowRange range = share.own(total);
    return OwnRows{range.first, range.count};
  });
  for (const auto& [tensor, digits] : found) {
    const auto due = written.find(tensor);
    if (due != written.end() && due->second == digits) continue;
    const auto file = static_cast<std::size_t>(target.find(tensor)->file);
    throw Error(target.files()[file].string() + " does not have the rows of tensor " +
                in_quotes(tensor) +
                " that canopy shard has written for this rank: copy the file "
                "again, and " +
                kShardRowsFile + " with it, or write the directory anew");
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
  require_own_rows(target, share);
}

}  // namespace canopy
