// Rows that ranks read of a model: those of all together are its own, in every format.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "offload/unit_layout.h"
#include "src/base/file.h"
#include "src/base/formats/fp8_format.h"
#include "tests/checkpoint/checkpoint_files.h"
#include "tests/checkpoint/fp8_files.h"
#include "tests/cluster/model/models.h"
#include "tests/error_of.h"
#include "tests/test_data.h"

namespace canopy::testing {
namespace {

using Parts = std::vector<std::int64_t>;
const Parts kParts[] = {{1, 1}, {2, 1}, {1, 1, 1}, {1, 3, 1, 2}};

/// A matrix of the model, whichever unit it is in; a head has several slices.
using Key = std::tuple<int, TensorRole, int>;  // layer, role, expert
std::map<Key, std::vector<TensorEntry>> matrices_of(const SweepLayout& sweep) {
  std::map<Key, std::vector<TensorEntry>> all;
  for (const UnitLayout& unit : sweep.units)
    for (const UnitTensor& matrix : unit.matrices)
      all[{unit.unit.layer, matrix.role, matrix.expert}].push_back(matrix.tensor);
  return all;
}

/// Expects that the slices, one after another, are the rows of the whole: in its file, and, of a
/// matrix with a companion, each row by the companion's slice.
void expect_whole(const std::vector<TensorEntry>& slices, const std::vector<TensorEntry>& whole) {
  const TensorEntry& first = whole.front();
  std::uint64_t offset = first.offset, bytes = 0;
  std::int64_t rows = 0;
  for (const TensorEntry& slice : slices) {
    EXPECT_EQ(slice.file, first.file);
    EXPECT_EQ(slice.offset, offset + bytes) << slice.name << " from row " << rows;
    EXPECT_EQ(slice.bytes, tensor_bytes(slice));
    EXPECT_EQ(slice.shape[1], first.shape[1]);
    rows += slice.shape[0];
    bytes += slice.bytes;
  }
  std::int64_t all_rows = 0;
  std::uint64_t all_bytes = 0;
  for (const TensorEntry& part : whole) all_rows += part.shape[0], all_bytes += part.bytes;
  EXPECT_EQ(rows, all_rows) << first.name;
  EXPECT_EQ(bytes, all_bytes) << first.name;
}

void expect_cut(const Checkpoint& checkpoint, std::int64_t block) {
  const auto whole = matrices_of(lay_out_sweep(checkpoint));
  for (const Parts& parts : kParts) {
    std::map<Key, std::vector<TensorEntry>> joined;
    for (int rank = 0; rank < static_cast<int>(parts.size()); ++rank) {
      const SweepLayout own = lay_out_sweep(checkpoint, ExpertsAre::kInUnits, {rank, parts, block});
      for (const auto& [key, slices] : matrices_of(own)) {
        if (!is_cut_by_rows(std::get<TensorRole>(key))) {
          ASSERT_EQ(slices.size(), 1u);
          EXPECT_EQ(slices[0].bytes, whole.at(key)[0].bytes) << "is whole everywhere";
        } else {
          auto& all = joined[key];
          all.insert(all.end(), slices.begin(), slices.end());
        }
      }
      // Each rank has the units of all, but for the slices of the head.
      const auto heads = std::ranges::count(own.units, UnitKind::kHead,
                                            [](const UnitLayout& u) { return u.unit.kind; });
      EXPECT_GE(heads, 1);
    }
    for (const auto& [key, of_whole] : whole)
      if (is_cut_by_rows(std::get<TensorRole>(key))) expect_whole(joined[key], of_whole);
  }
}

TEST(ShareLayout, CoversEachRowOfEachModelOnce) {
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test_data() / "model")) {
    const std::string name = entry.path().filename();
    if (!entry.is_directory() && entry.path().extension() != ".gguf") continue;
    SCOPED_TRACE(name);
    if (is_read_by_pack_alone(entry.path())) continue;
    const Checkpoint checkpoint = Checkpoint::open(entry.path());
    expect_cut(checkpoint, 128);
    if (name.find("fp8") == std::string::npos) expect_cut(checkpoint, 16);
    ++models;
  }
  EXPECT_GT(models, 50);
}

class ShareOfFormat : public ::testing::TestWithParam<WeightFormat> {};

TEST_P(ShareOfFormat, CoversEachRowOnce) {
  const bool wide = GetParam().block_elements == 256;
  const TempDir dir;
  const TinyModel model = tiny_model({.dim = wide ? 256 : 64,
                                      .hidden_dim = 512,
                                      .head_dim = wide ? 64 : 16,
                                      .vocab = 300,
                                      .matrices = GetParam().dtype});
  write_file(dir / "model.gguf", gguf_writer(model).bytes());
  const Checkpoint checkpoint = Checkpoint::open(dir / "model.gguf");
  expect_cut(checkpoint, 128);
  expect_cut(checkpoint, 1);
}

INSTANTIATE_TEST_SUITE_P(Formats, ShareOfFormat, ::testing::ValuesIn(as_data(GgufBlocks())),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ShareLayout, RefusesACutWithinABlockOfScales) {
  const Checkpoint checkpoint = Checkpoint::open(test_data() / "model" / "qwen3_moe_fp8");
  const std::string error = error_of([&] {
    lay_out_sweep(checkpoint, ExpertsAre::kInUnits, {0, {1, 1}, 16});
  });
  EXPECT_NE(error.find("model.layers.0.self_attn.q_proj.weight"), std::string::npos) << error;
  EXPECT_NE(error.find("multiples of 128 rows"), std::string::npos) << error;
}

TEST(ShareLayout, OfAllRowsIsTheModel) {
  const Checkpoint checkpoint = Checkpoint::open(test_data() / "model" / "llama2");
  const SweepLayout whole = lay_out_sweep(checkpoint),
                    own = lay_out_sweep(checkpoint, ExpertsAre::kInUnits, {0, {5}});
  ASSERT_EQ(whole.units.size(), own.units.size());
  for (std::size_t i = 0; i < whole.units.size(); ++i)
    EXPECT_EQ(whole.units[i].read.slab_bytes, own.units[i].read.slab_bytes);
}

}  // namespace
}  // namespace canopy::testing
