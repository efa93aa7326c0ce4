#include "offload/unit_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "offload/io/read_engine.h"
#include "src/base/error.h"
#include "src/checkpoint/model_tensors.h"
#include "tests/checkpoint/tiny_checkpoint.h"

namespace canopy {
namespace {

using test::make_tiny;
using test::TinyShape;

TensorEntry at(int file, std::uint64_t offset, std::uint64_t bytes) {
  return {"t", DType::kBF16, {}, file, offset, bytes};
}

ReadLayout lay_out_all(const std::vector<TensorEntry>& tensors, std::size_t alignment) {
  std::vector<const TensorEntry*> pointers;
  for (const TensorEntry& tensor : tensors) pointers.push_back(&tensor);
  return lay_out(pointers, alignment);
}

TEST(ReadLayout, WidensAnOddTensorAndPointsInside) {
  const ReadLayout layout = lay_out_all({at(0, 5001, 100)}, 4096);
  ASSERT_EQ(layout.extents.size(), 1u);
  EXPECT_EQ(layout.extents[0].offset, 4096u);
  EXPECT_EQ(layout.extents[0].bytes, 4096u);
  EXPECT_EQ(layout.extents[0].needed, 5101u - 4096u);
  EXPECT_EQ(layout.slab_at[0], 5001u - 4096u);
}

TEST(ReadLayout, ReadsNeighboursAsOneWhateverTheirOrder) {
  const ReadLayout layout = lay_out_all({at(0, 9000, 5000), at(0, 100, 8900)}, 4096);
  ASSERT_EQ(layout.extents.size(), 1u);
  EXPECT_EQ(layout.extents[0].bytes, 16'384u);
  EXPECT_EQ(layout.slab_at, (std::vector<std::size_t>{9000, 100}));
}

TEST(ReadLayout, KeepsDistantTensorsAndFilesApart) {
  const ReadLayout layout = lay_out_all({at(0, 0, 10), at(0, 8192, 10), at(1, 4096, 10)}, 4096);
  ASSERT_EQ(layout.extents.size(), 3u);
  EXPECT_EQ(layout.slab_bytes, 3u * 4096);
}

TEST(ReadLayout, PartsOfItsExtentsAreTheWhole) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<TensorEntry> tensors;
    for (int i = 0; i < 6; ++i)
      tensors.push_back(at(static_cast<int>(random() % 2), random() % 200'000, random() % 60'000));
    const ReadLayout whole = lay_out_all(tensors, 4096);
    std::vector<Extent> joined;
    for (std::size_t begin = 0; begin < whole.slab_bytes;) {
      const std::size_t end = std::min(whole.slab_bytes, begin + 4096 * (1 + random() % 8));
      for (const Extent& part : part_of(whole.extents, begin, end)) {
        EXPECT_GE(part.slab_offset, begin);
        EXPECT_LE(part.slab_offset + part.bytes, end);
        Extent* last = joined.empty() ? nullptr : &joined.back();
        const bool same = last && last->file == part.file &&
                          last->offset + last->bytes == part.offset &&
                          last->slab_offset + last->bytes == part.slab_offset;
        if (!same) {
          joined.push_back(part);
          continue;
        }
        if (part.needed > 0) {
          EXPECT_EQ(last->needed, last->bytes);
        }
        last->bytes += part.bytes;
        last->needed += part.needed;
      }
      begin = end;
    }
    ASSERT_EQ(joined.size(), whole.extents.size());
    for (std::size_t i = 0; i < joined.size(); ++i) {
      EXPECT_EQ(joined[i].offset, whole.extents[i].offset);
      EXPECT_EQ(joined[i].bytes, whole.extents[i].bytes);
      EXPECT_EQ(joined[i].needed, whole.extents[i].needed);
      EXPECT_EQ(joined[i].slab_offset, whole.extents[i].slab_offset);
    }
  }
}

TEST(ReadLayout, EveryTensorLiesInsideAnAlignedExtentThatReachesItsEnd) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<TensorEntry> tensors(1 + random() % 12);
    for (TensorEntry& t : tensors)
      t = at(static_cast<int>(random() % 3), random() % 100'000, random() % 30'000);
    const std::size_t alignment = std::size_t{512} << random() % 4;
    const ReadLayout layout = lay_out_all(tensors, alignment);
    std::size_t end = 0;
    for (const Extent& e : layout.extents) {
      EXPECT_EQ(e.offset % alignment, 0u);
      EXPECT_EQ(e.bytes % alignment, 0u);
      EXPECT_EQ(e.slab_offset, end) << "extents are packed, in order";
      EXPECT_LE(e.needed, e.bytes);
      end += e.bytes;
    }
    EXPECT_EQ(layout.slab_bytes, end);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const TensorEntry& t = tensors[i];
      const auto holds = [&](const Extent& e) {
        return e.file == t.file && e.offset <= t.offset &&
               t.offset + t.bytes <= e.offset + e.needed &&
               layout.slab_at[i] == e.slab_offset + (t.offset - e.offset);
      };
      EXPECT_TRUE(std::any_of(layout.extents.begin(), layout.extents.end(), holds));
    }
  }
}

TEST(UnitLayout, CutsTheHeadBetweenBlocksOfRowsWhereAUnitHoldsOne) {
  const TempDir dir;
  for (const int vocab : {1000, 1024, 5003}) {
    const test::TinyCheckpoint tiny =
        test::make_tiny(dir.path(), {.layers = 1, .dim = 64, .hidden = 192, .vocab = vocab});
    std::int64_t next = 0, slices = 0;
    for (const UnitLayout& unit : tiny.sweep.units) {
      if (unit.unit.kind != UnitKind::kHead) continue;
      EXPECT_EQ(unit.unit.first_row, next);
      EXPECT_EQ(unit.unit.first_row % kHeadBlock, 0);
      next += unit.unit.rows;
      ++slices;
    }
    EXPECT_EQ(next, vocab);
    EXPECT_GT(slices, 1);
  }
}

TEST(UnitLayout, SweepsAttentionThenMlpOfEachLayerThenTheHeadInSlicesThatCoverIt) {
  const TempDir dir;
  const auto tiny = make_tiny(dir.path(), {.layers = 2, .vocab = 1000});
  const std::vector<UnitLayout>& units = tiny.sweep.units;
  ASSERT_GT(units.size(), 5u) << "the head is larger than a unit";
  std::size_t largest = 0;
  for (int layer = 0; layer < 2; ++layer)
    for (const UnitKind kind : {UnitKind::kAttention, UnitKind::kMlp}) {
      const UnitLayout& u = units[static_cast<std::size_t>(layer * 2 + (kind == UnitKind::kMlp))];
      EXPECT_EQ(u.unit.layer, layer);
      EXPECT_EQ(u.unit.kind, kind);
      largest = std::max(largest, u.read.slab_bytes);
    }
  std::int64_t rows = 0;
  for (std::size_t i = 4; i < units.size(); ++i) {
    EXPECT_EQ(units[i].unit.kind, UnitKind::kHead);
    EXPECT_EQ(units[i].unit.layer, 2);
    EXPECT_EQ(units[i].unit.first_row, rows);
    EXPECT_LE(static_cast<std::size_t>(units[i].unit.rows) * row_bytes(DType::kBF16, 64), largest);
    rows += units[i].unit.rows;
  }
  EXPECT_EQ(rows, 1000);
}

TEST(UnitLayout, EachTensorOfTheTableIsAFieldOfItsUnitOnce) {
  const TempDir dir;
  for (const bool tied : {false, true}) {
    const auto tiny = make_tiny(dir.path(), {.tied = tied, .bias = true, .qk_norm = true});
    std::multiset<std::string> laid_out, named;
    for (const UnitLayout& unit : tiny.sweep.units) {
      if (unit.unit.first_row > 0) continue;  // a further slice of the head
      const auto check = [&](const auto& tensors) {
        for (const auto& tensor : tensors) laid_out.insert(tensor.tensor.name);
        for (std::size_t i = 0; i < tensors.size(); ++i)
          for (std::size_t j = 0; j < i; ++j) EXPECT_NE(tensors[i].role, tensors[j].role);
      };
      check(unit.matrices);
      check(unit.vectors);
    }
    for_each_tensor(tiny.checkpoint.config(), [&](const ModelTensor& tensor) {
      if (tensor.spec->unit != TensorUnit::kEmbedding || tied) named.insert(tensor.name());
    });
    EXPECT_EQ(laid_out, named);
  }
}

TEST(UnitLayout, EachLayerHasTheVectorsOfItsKind) {
  const TempDir dir;
  const auto tiny = make_tiny(dir.path(), {.layers = 3, .bias = true, .qk_norm = true});
  ModelConfig config = tiny.checkpoint.config();
  config.take_turns(std::array{LayerConfig{.qkv_bias = true}, LayerConfig{.qk_norm = true}});
  const Checkpoint& all = tiny.checkpoint;
  const auto units =
      lay_out_sweep(Checkpoint(all.root(), all.files(), all.tensors(), config, {})).units;
  const std::size_t norm = 1, biases = 3, norms_of_heads = 2;
  EXPECT_EQ(units[0].vectors.size(), norm + biases);
  EXPECT_EQ(units[2].vectors.size(), norm + norms_of_heads);
  EXPECT_EQ(units[4].vectors.size(), norm + biases);
}

TEST(UnitLayout, NamesTheTensorThatIsMissingOrOfTheWrongShape) {
  const TempDir dir;
  const auto tiny = make_tiny(dir.path(), {});
  const auto message = [&](std::vector<TensorEntry> tensors) -> std::string {
    try {
      lay_out_sweep(Checkpoint(dir.path(), tiny.checkpoint.files(), std::move(tensors),
                               tiny.checkpoint.config(), {}));
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  std::vector<TensorEntry> tensors = tiny.checkpoint.tensors();
  const auto it = std::find_if(tensors.begin(), tensors.end(),
                               [&](const TensorEntry& t) { return t.name == name; });
  EXPECT_EQ(message(tensors), "");
  it->shape = {it->shape[0], it->shape[1] / 2};
  EXPECT_NE(message(tensors).find(name + " has shape [160, 32], but the model's config asks for"),
            std::string::npos);
  it->shape[1] *= 2;
  it->bytes -= 2;
  EXPECT_NE(message(tensors).find(name), std::string::npos);
  tensors.erase(it);
  EXPECT_NE(message(tensors).find(name + " is missing"), std::string::npos);
}

}  // namespace
}  // namespace canopy
