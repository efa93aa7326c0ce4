// Packed models: what is packed comes back bit for bit, computes the same, and a damaged one is
// refused in one line.
#include "src/convert/pack/pack.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <set>

#include "src/base/error.h"
#include "src/base/formats/packed_format.h"
#include "src/convert/enlarge/inflate.h"
#include "src/convert/quantize/quantize.h"
#include "src/convert/safetensors/hf_files.h"
#include "src/convert/safetensors/safetensors_writer.h"
#include "tests/convert/bf16_gguf.h"
#include "tests/convert/tiny_outputs.h"
#include "tests/error_of.h"
#include "tests/temp_dir.h"

namespace canopy::test {
namespace {

/// The stored bytes of each tensor of a model, with its dtype.
std::map<std::string, std::string> stored(const Checkpoint& model) {
  std::map<std::string, std::string> tensors;
  for (const TensorEntry& t : model.tensors()) {
    std::ifstream in(model.files().at(static_cast<std::size_t>(t.file)), std::ios::binary);
    in.seekg(static_cast<std::streamoff>(t.offset));
    std::string bytes(t.bytes, '\0');
    in.read(bytes.data(), static_cast<std::streamsize>(t.bytes));
    tensors[t.name] = name(t.dtype) + to_string(t.shape) + bytes;
  }
  return tensors;
}

int packed_matrices(const Checkpoint& model) {
  return static_cast<int>(
      std::ranges::count_if(model.tensors(), [](const auto& t) { return is_packed(t.dtype); }));
}

/// An enlargement of a tiny model, whose own rows are too short to be packed.
Checkpoint enlarged(const std::string& name, const TempDir& dir) {
  inflate(tiny_model(name),
          {.output = dir / "model", .small = dir / "model-small", .bytes = 2'000'000, .seed = 3},
          kSilent);
  return Checkpoint::open(dir / "model");
}

/// A model of such a shape, its weights made by `value(row, column)` as BF16 bits.
template <class Value>
Checkpoint write_model(const TempDir& dir, const std::filesystem::path& directory,
                       const Value& value) {
  const Checkpoint shape = enlarged("llama2", dir);
  std::filesystem::create_directories(directory);
  copy_hf_files(shape, directory);
  std::vector<PlannedTensor> planned;
  for (const TensorEntry& t : shape.tensors()) planned.push_back({t.name, t.shape});
  SafetensorsWriter writer(directory, planned);
  for (const PlannedTensor& t : planned) {
    const std::int64_t rows = t.shape.size() == 1 ? 1 : t.shape[0];
    std::vector<std::uint16_t> row(static_cast<std::size_t>(t.shape.back()));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < row.size(); ++c) row[c] = value(static_cast<std::size_t>(r), c);
      writer.write(t.name, row);
    }
  }
  writer.finish();
  return Checkpoint::open(directory);
}

TEST(Pack, EveryFamilyComesBackBitForBitAndHasTheSameLogits) {
  for (const char* name : {"llama2", "llama2_odd", "llama2_shards", "llama3", "mistral",
                           "ministral3", "mistral3", "qwen2", "qwen3", "seed_oss", "smollm2"}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const Checkpoint model = enlarged(name, dir);
    const PackReport report = pack(model, dir / "packed", 3, kSilent);
    EXPECT_GT(report.packed, 0);
    const Checkpoint packed = Checkpoint::open(dir / "packed");
    EXPECT_EQ(packed_matrices(packed), report.packed);
    const std::vector<float> logits = logits_of(model);
    EXPECT_EQ(logits_of(packed), logits);
    EXPECT_EQ(streamed_logits_of(packed), logits);
    const UnpackReport back = unpack(packed, dir / "back", 2, kSilent);
    EXPECT_EQ(back.checked, back.tensors);
    EXPECT_TRUE(stored(Checkpoint::open(dir / "back")) == stored(model));
  }
}

/// Packs by a codec.
PackReport pack_by(std::string_view codec, const Checkpoint& model,
                   const std::filesystem::path& output) {
  return pack(
      model, output, 3, kSilent, [](const std::string&) {}, codec);
}

TEST(Pack, EveryCodecGivesTheSameLogitsAndEveryBitBack) {
  const TempDir dir;
  const Checkpoint model = enlarged("qwen2", dir);
  const std::vector<float> logits = logits_of(model);
  std::set<std::string> files;
  for (const PackedFormat& format : as_data_of_packed(PackedBf16Formats())) {
    SCOPED_TRACE(format.codec);
    const std::string name = std::string("packed-") + format.codec;
    const PackReport report = pack_by(format.codec, model, dir / name);
    EXPECT_GT(report.packed, 0);
    EXPECT_TRUE(files.insert(contents(dir / name / "model.safetensors")).second);
    const Checkpoint packed = Checkpoint::open(dir / name);
    EXPECT_EQ(std::ranges::count_if(packed.tensors(),
                                    [&](const auto& t) { return t.dtype == format.dtype; }),
              report.packed);
    EXPECT_EQ(logits_of(packed), logits);
    EXPECT_EQ(streamed_logits_of(packed), logits);
    const UnpackReport back = unpack(packed, dir / (name + "-back"), 2, kSilent);
    EXPECT_EQ(back.checked, back.tensors);
    EXPECT_TRUE(stored(Checkpoint::open(dir / (name + "-back"))) == stored(model));
  }
}

TEST(Pack, TheCodecOfBf16IsTheWindowUnlessAnotherIsNamed) {
  const TempDir dir;
  const Checkpoint model = enlarged("llama2", dir);
  pack(model, dir / "plain", 2, kSilent);
  pack_by(format::PackedBF16::kCodec, model, dir / "named");
  EXPECT_EQ(contents(dir / "plain/model.safetensors"), contents(dir / "named/model.safetensors"));
  EXPECT_NE(contents(dir / "plain/model.safetensors").find("\"bf16-window-512\\\""),
            std::string::npos);
}

// Most of their rows are too short to become smaller.
TEST(Pack, EveryGoldenModelComesBack) {
  for (const char* name :
       {"llama2", "llama2_odd", "llama2_shards", "llama3", "llama_linear", "llama_yarn", "mistral",
        "ministral3", "mistral3", "mistral3_tied", "qwen2", "qwen3", "seed_oss", "smollm2",
        "gemma4", "exaone", "hunyuan", "apertus", "cohere_qk"}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const Checkpoint model = tiny_model(name);
    const bool any = pack(model, dir / "packed", 3, kSilent).packed > 0;
    if (any) unpack(Checkpoint::open(dir / "packed"), dir / "back", 3, kSilent);
    EXPECT_TRUE(stored(Checkpoint::open(dir / (any ? "back" : "packed"))) == stored(model));
  }
}

/// Every weight, in the order of Hugging Face's rows.
std::map<std::string, std::vector<float>> weights(const Checkpoint& model) {
  std::map<std::string, std::vector<float>> tensors;
  WeightRows rows(model);
  for (const TensorEntry& t : model.tensors()) {
    std::vector<float> row(static_cast<std::size_t>(WeightRows::columns(t)));
    for (std::int64_t r = 0; r < WeightRows::rows(t); ++r) {
      rows.read(t, r, row);
      tensors[t.name].insert(tensors[t.name].end(), row.begin(), row.end());
    }
  }
  return tensors;
}

TEST(Pack, GgufFilesComeBackInHuggingFacesOrderOfRows) {
  for (const char* name : {"llama2", "mistral", "qwen2", "qwen3"}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const Checkpoint model = enlarged(name, dir);
    const Checkpoint gguf = write_bf16_gguf(model, dir / "model.gguf");
    EXPECT_GT(pack(gguf, dir / "packed", 3, kSilent).packed, 0);
    const Checkpoint packed = Checkpoint::open(dir / "packed");
    unpack(packed, dir / "back", 3, kSilent);
    const Checkpoint back = Checkpoint::open(dir / "back");
    EXPECT_EQ(weights(back), weights(model));
    EXPECT_EQ(logits_of(packed), logits_of(model));
    EXPECT_EQ(logits_of(back), logits_of(model));
    // A GGUF file of llama adds the products of queries with keys in another order.
    if (!gguf.config().rope_adjacent_pairs) {
      EXPECT_EQ(logits_of(packed), logits_of(gguf));
    }
  }
}

TEST(Pack, WeightsInBlocksAreRefused) {
  const TempDir dir;
  const TempDir made;
  quantize(enlarged("llama2", dir), made / "q.gguf", DType::kQ8_0, kSilent, 1);
  EXPECT_NE(error_of([&] {
              pack(Checkpoint::open(made / "q.gguf"), made / "packed", 1, kSilent);
            }).find("is small already"),
            std::string::npos);
  EXPECT_EQ(entries(made.path()), std::vector<std::string>{"q.gguf"});
}

// Any bits: NaN payloads, infinities, subnormals, zeros of both signs; rows all alike.
TEST(Pack, HostileValuesComeBack) {
  const TempDir dir;
  const Checkpoint model = write_model(dir, dir / "model", [](std::size_t row, std::size_t column) {
    const std::uint16_t kinds[] = {0x7fc1, 0xff81, 0x7f80, 0xff80, 1, 0x807f, 0, 0x8000};
    if (row % 3 == 0) return kinds[row / 3 % 8];  // all alike
    if (row % 97 == 1) return static_cast<std::uint16_t>(column * 40503 + row * 7919);
    return static_cast<std::uint16_t>(0x3c00 + (column * 31 + row) % 256);
  });
  for (const PackedFormat& format : as_data_of_packed(PackedBf16Formats())) {
    const std::string name = format.codec;
    EXPECT_GT(pack_by(format.codec, model, dir / name).packed, 0);
    unpack(Checkpoint::open(dir / name), dir / (name + "-back"), 2, kSilent);
    EXPECT_TRUE(stored(Checkpoint::open(dir / (name + "-back"))) == stored(model)) << name;
  }
}

TEST(Pack, AMatrixThatGetsNoSmallerStaysAsItIs) {
  const TempDir dir;
  const Checkpoint mixed = write_model(dir, dir / "mixed", [](std::size_t row, std::size_t column) {
    const bool regular = row < 150;  // of the small matrices all rows, of the large ones few
    return regular ? static_cast<std::uint16_t>(0x3c00 + (column + row) % 200)
                   : static_cast<std::uint16_t>((column * 40503 + row * 7919) * 2654435761u >> 7);
  });
  const PackReport report = pack(mixed, dir / "packed", 2, kSilent);
  EXPECT_GT(report.packed, 0);
  EXPECT_GT(report.plain, 0);
  unpack(Checkpoint::open(dir / "packed"), dir / "back", 2, kSilent);
  EXPECT_TRUE(stored(Checkpoint::open(dir / "back")) == stored(mixed));
}

TEST(Pack, UnitsBeginWhereDirectReadsDoAndAreOneExtent) {
  const TempDir dir;
  pack(enlarged("qwen2", dir), dir / "packed", 2, kSilent);
  const SweepLayout sweep = lay_out_sweep(Checkpoint::open(dir / "packed"));
  for (const UnitLayout& unit : sweep.units) {
    ASSERT_EQ(unit.read.extents.size(), 1u) << describe(unit.unit);
    if (unit.unit.kind != UnitKind::kHead) {
      EXPECT_EQ(unit.read.slab_at[0], 0u) << describe(unit.unit);
    }
  }
}

TEST(Pack, SoDoExperts) {
  const TempDir dir;
  inflate(enlarged("llama2", dir),
          {.output = dir / "mixture", .small = dir / "small", .experts = 5, .active = 2, .seed = 3},
          kSilent);
  const Checkpoint model = Checkpoint::open(dir / "mixture");
  EXPECT_GT(pack(model, dir / "packed", 2, kSilent).packed, 0);
  const SweepLayout sweep = lay_out_sweep(Checkpoint::open(dir / "packed"), ExpertsAre::kApart);
  ASSERT_FALSE(sweep.experts.empty());
  for (const ExpertLayout& expert : sweep.experts) {
    ASSERT_EQ(expert.read.extents.size(), 1u) << expert.layer << ", " << expert.expert;
    EXPECT_EQ(expert.read.slab_at[0], 0u) << expert.layer << ", " << expert.expert;
  }
  unpack(Checkpoint::open(dir / "packed"), dir / "back", 2, kSilent);
  EXPECT_TRUE(stored(Checkpoint::open(dir / "back")) == stored(model));
}

TEST(Pack, TheSameModelGivesTheSameBytesWhateverTheThreads) {
  const TempDir dir;
  const Checkpoint model = enlarged("llama2", dir);
  pack(model, dir / "one", 1, kSilent);
  pack(model, dir / "five", 5, kSilent);
  EXPECT_EQ(contents(dir / "one/model.safetensors"), contents(dir / "five/model.safetensors"));
}

TEST(Pack, RefusesWhatItIsNotFor) {
  const TempDir dir;
  pack(enlarged("llama2", dir), dir / "packed", 1, kSilent);
  const Checkpoint packed = Checkpoint::open(dir / "packed");
  EXPECT_NE(error_of([&] { pack(packed, dir / "again", 1, kSilent); }).find("is packed already"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              unpack(tiny_model("llama2"), dir / "back", 1, kSilent);
            }).find("is not packed"),
            std::string::npos);
  quantize(tiny_model("olmoe"), dir / "mixture.gguf", DType::kBF16, kSilent, 1);
  EXPECT_NE(error_of([&] {
              pack(Checkpoint::open(dir / "mixture.gguf"), dir / "mixture", 1, kSilent);
            }).find("is packed from its Hugging Face directory"),
            std::string::npos);
}

TEST(Unpack, ADamagedTensorIsNamedAndNothingIsLeft) {
  const TempDir dir;
  pack(enlarged("llama2", dir), dir / "packed", 1, kSilent);
  const Checkpoint before = Checkpoint::open(dir / "packed");
  const TensorEntry& tensor = *before.find("model.layers.1.mlp.up_proj.weight");
  std::string bytes = contents(dir / "packed/model.safetensors");
  bytes[tensor.offset + 60] ^= 1;
  dir.write("packed/model.safetensors", bytes);
  const std::string error =
      error_of([&] { unpack(Checkpoint::open(dir / "packed"), dir / "back", 2, kSilent); });
  EXPECT_NE(error.find(tensor.name), std::string::npos) << error;
  EXPECT_NE(error.find("is damaged"), std::string::npos) << error;
  EXPECT_FALSE(std::filesystem::exists(dir / "back"));
  EXPECT_EQ(entries(dir.path()).size(), 3u) << "nothing is half-written";
}

}  // namespace
}  // namespace canopy::test
