// FP8 directories, packed: codes and scales come back bit for bit, the packed model computes the
// same, and a damaged one is refused in one line.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "src/base/formats/packed_format.h"
#include "src/checkpoint/fingerprint.h"
#include "src/checkpoint/readers.h"
#include "src/convert/pack/pack.h"
#include "tests/checkpoint/fp8_files.h"
#include "tests/convert/tiny_outputs.h"

namespace canopy::testing {
namespace {

using test::contents;
using test::kSilent;

constexpr const char* kCodec = format::LevelsE4M3Rows::kCodec;
constexpr const char* kUp = "model.layers.1.mlp.up_proj";

/// All that the files of a directory hold, scales and what nothing reads included.
std::map<std::string, std::string> stored(const std::filesystem::path& directory) {
  std::map<std::string, std::string> tensors;
  const TensorIndex index = read_safetensors(directory);
  for (const TensorEntry& t : index.tensors) {
    const std::string file = contents(index.files[static_cast<std::size_t>(t.file)]);
    tensors[t.name] = t.foreign_dtype.value_or(name(t.dtype)) + to_string(t.shape) +
                      file.substr(t.offset, t.bytes);
  }
  return tensors;
}

/// A model with rows that become smaller; no matrix is whole blocks of 128 x 128.
Checkpoint write_fp8(const Fp8Form& form, const std::filesystem::path& directory,
                     std::size_t shards = 1) {
  write_hugging_face(directory, fp8_models(form, {.head_dim = 52}, 520, 648).fp8, shards);
  return Checkpoint::open(directory);
}

int packed_matrices(const Checkpoint& model) {
  return static_cast<int>(
      std::ranges::count_if(model.tensors(), [](const auto& t) { return is_packed(t.dtype); }));
}

class PackFp8 : public ::testing::TestWithParam<Fp8Form> {};

TEST_P(PackFp8, EveryBitComesBackWithTheScalesAndLogitsAreTheSame) {
  const TempDir dir;
  const Checkpoint model = write_fp8(GetParam(), dir / "model", 3);
  const PackReport report = pack(model, dir / "packed", 3, kSilent);
  EXPECT_EQ(report.packed_by, (std::map<std::string, int>{{kCodec, 14}}));
  EXPECT_LT(report.bytes, report.source_bytes);
  const Checkpoint packed = Checkpoint::open(dir / "packed");
  EXPECT_EQ(packed_matrices(packed), 14);
  EXPECT_EQ(packed.config().quantization, model.config().quantization);
  EXPECT_EQ(source_fingerprint(packed), fingerprint(model));
  const std::vector<float> logits = test::logits_of(model);
  EXPECT_EQ(test::logits_of(packed), logits);
  EXPECT_EQ(test::streamed_logits_of(packed), logits);
  const UnpackReport back = unpack(packed, dir / "back", 2, kSilent);
  EXPECT_EQ(back.checked, back.tensors);
  EXPECT_TRUE(stored(dir / "back") == stored(dir / "model"));
  EXPECT_EQ(contents(dir / "back/config.json"), contents(dir / "model/config.json"));
}

INSTANTIATE_TEST_SUITE_P(Forms, PackFp8, ::testing::ValuesIn(kFp8Forms),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(PackFp8Model, RowsThatGetNoSmallerStayCodes) {
  const TempDir dir;
  write_hugging_face(dir / "model", fp8_models(kFp8Forms[0], {}, 80, 100).fp8);
  const PackReport report = pack(Checkpoint::open(dir / "model"), dir / "packed", 2, kSilent);
  EXPECT_EQ(report.packed, 0);
  EXPECT_TRUE(stored(dir / "packed") == stored(dir / "model"));
}

TEST(PackFp8Model, AnyCodesComeBack) {
  const TempDir dir;
  Fp8Models models = fp8_models(kFp8Forms[7], {}, 520, 648);
  std::mt19937_64 random(3);
  for (FileTensor& tensor : models.fp8.tensors)
    if (tensor.stored_dtype == "F8_E4M3")
      for (std::size_t i = 0; i < tensor.bytes.size(); ++i) {
        const bool any = i % 97 == 1;  // NaN, zeros and subnormals among them
        tensor.bytes[i] = static_cast<char>(any ? random() : 0x30 + random() % 24);
      }
  write_hugging_face(dir / "model", models.fp8);
  EXPECT_EQ(pack(Checkpoint::open(dir / "model"), dir / "packed", 2, kSilent).packed, 14);
  unpack(Checkpoint::open(dir / "packed"), dir / "back", 2, kSilent);
  EXPECT_TRUE(stored(dir / "back") == stored(dir / "model"));
}

/// Packs by a codec that is named.
PackReport pack_by(std::string_view codec, const Checkpoint& model,
                   const std::filesystem::path& output) {
  return pack(
      model, output, 2, kSilent, [](const std::string&) {}, codec);
}

TEST(PackFp8Model, ACodecIsForItsMatricesAndOthersArePackedAsEver) {
  const TempDir dir;
  TinyOptions options;
  options.dim = 520, options.hidden_dim = 648, options.heads = 10, options.kv_heads = 5;
  options.matrices = DType::kBF16;
  Fp8Models models = fp8_models(kFp8Forms[0], {.head_dim = 52}, 520, 648);
  const TinyModel bf16 = tiny_model(options);
  for (FileTensor& tensor : models.fp8.tensors)
    if (tensor.name == "model.embed_tokens.weight")
      for (const FileTensor& other : bf16.tensors)
        if (other.name == tensor.name) tensor = other;
  write_hugging_face(dir / "model", models.fp8);
  const Checkpoint model = Checkpoint::open(dir / "model");
  using By = std::map<std::string, int>;
  EXPECT_EQ(pack_by("", model, dir / "plain").packed_by,
            (By{{kCodec, 14}, {"bf16-window-512", 1}}));
  EXPECT_EQ(pack_by(kCodec, model, dir / "same").packed_by,
            (By{{kCodec, 14}, {"bf16-window-512", 1}}));
  EXPECT_EQ(pack_by("bf16-levels-512", model, dir / "levels").packed_by,
            (By{{kCodec, 14}, {"bf16-levels-512", 1}}));
  EXPECT_EQ(contents(dir / "plain/model.safetensors"), contents(dir / "same/model.safetensors"));
  write_hugging_face(dir / "bf16", bf16);
  EXPECT_NE(error_of([&] {
              pack_by(kCodec, Checkpoint::open(dir / "bf16"), dir / "no");
            }).find("has no matrix that codec e4m3-levels-512 is for"),
            std::string::npos);
}

TEST(PackFp8Model, PartsOfATensorThatWasTakenApartAreRefusedByName) {
  const TempDir dir;
  const Checkpoint model = write_fp8(kFp8Forms[0], dir / "model");
  std::vector<TensorEntry> tensors = model.tensors();
  for (TensorEntry& tensor : tensors)
    if (!tensor.companion.empty()) tensor = rows_of(tensor, 0, tensor.shape[0]);
  const Checkpoint parts(model.root(), model.files(), tensors, model.config(), model.metadata());
  const std::string error = error_of([&] { pack(parts, dir / "packed", 1, kSilent); });
  EXPECT_NE(error.find("'model.layers.0.mlp.down_proj.weight' is one of several"), error.npos)
      << error;
}

/// A packed model whose header a test changes.
class PackedFp8 : public ::testing::Test {
 protected:
  void SetUp() override {
    write_fp8(kFp8Forms[0], dir_ / "model");
    pack(Checkpoint::open(dir_ / "model"), dir_ / "packed", 1, kSilent);
  }
  /// The error of opening it when its header was changed, to one that is not longer.
  template <class Change>
  std::string error_of_header(const Change& change) {
    const auto file = dir_ / "packed/model.safetensors";
    const std::string before = contents(file);
    std::uint64_t length = 0;
    std::memcpy(&length, before.data(), sizeof length);
    auto header = nlohmann::ordered_json::parse(before.substr(8, length));
    change(header);
    std::string text = header.dump();
    text.resize(length, ' ');
    std::ofstream(file, std::ios::binary)
        << before.substr(0, 8) << text << before.substr(8 + length);
    const std::string error = error_of([&] { Checkpoint::open(dir_ / "packed"); });
    std::ofstream(file, std::ios::binary) << before;
    return error;
  }
  static void expect_mention(const std::string& error, const std::string& what) {
    EXPECT_NE(error.find(what), error.npos) << "got: " << error << "\nwanted: " << what;
  }
  const TempDir dir_;
};

TEST_F(PackedFp8, ThatContradictsItselfIsRefusedByName) {
  const std::string up = kUp + std::string(".weight");
  const auto described = [&](auto& header, const auto& change) {
    auto all = nlohmann::ordered_json::parse(
        header["__metadata__"]["canopy.tensors"].template get<std::string>());
    change(all);
    header["__metadata__"]["canopy.tensors"] = all.dump();
  };
  const auto rename = [](auto& header, const std::string& from, const std::string& to) {
    header[to] = header[from];
    header.erase(from);
  };
  expect_mention(error_of_header([&](auto& header) {
                   described(header, [&](auto& all) { all.erase(up + "_scale_inv"); });
                   rename(header, up + "_scale_inv", up + "_scale_ing");
                 }),
                 "it has no scales");
  expect_mention(error_of_header([&](auto& header) {
                   described(header, [&](auto& all) { all[up]["codec"] = "bf16-window-512"; });
                 }),
                 "reading packed tensor '" + up + "'");
  expect_mention(error_of_header([&](auto& header) {
                   described(header, [&](auto& all) { all[up]["shape"] = {647, 520}; });
                 }),
                 "it has 647 rows, but 649 offsets");
  expect_mention(error_of_header([&](auto& header) {
                   described(header, [&](auto& all) { all[up]["shape"] = {648, 256}; });
                 }),
                 up);
  expect_mention(error_of_header([&](auto& header) {
                   header[up + "_scale_inv"]["shape"] = {3, 4};
                   header[up + "_scale_inv"]["dtype"] = "U8";
                 }),
                 "takes 12");
  expect_mention(error_of_header([&](auto& header) {
                   header[up + "_scale_inv"]["shape"] = {5, 6, 1};
                 }),
                 "have shape [5, 6, 1], but FP8 asks for [6, 5]");
}

TEST_F(PackedFp8, OfAConfigWithoutASchemeIsRefused) {
  auto config = nlohmann::json::parse(contents(dir_ / "packed/config.json"));
  config.erase("quantization_config");
  std::ofstream(dir_ / "packed/config.json") << config.dump();
  const std::string error = error_of([&] { Checkpoint::open(dir_ / "packed"); });
  expect_mention(error, "'e4m3-levels-512'");
  expect_mention(error, "has no 'quantization_config'");
}

// A file may call any type by a codec's name.
TEST_F(PackedFp8, TensorsThatAreNotDescribedAreOfNoTypeThatIsKnown) {
  auto model = fp8_models(kFp8Forms[0]).fp8;
  model.at(kUp + std::string(".weight")).stored_dtype = kCodec;
  write_hugging_face(dir_ / "other", model);
  const std::string error = error_of([&] { Checkpoint::open(dir_ / "other"); });
  expect_mention(error, "has dtype 'e4m3-levels-512', which is not supported");
}

TEST_F(PackedFp8, DamagedScalesAreNamedWhenTheyAreUnpacked) {
  const auto file = dir_ / "packed/model.safetensors";
  std::string bytes = contents(file);
  const Checkpoint before = Checkpoint::open(dir_ / "packed");
  const TensorEntry& scales = before.find(kUp + std::string(".weight"))->scales.at(0);
  bytes[scales.offset] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  const std::string error =
      error_of([&] { unpack(Checkpoint::open(dir_ / "packed"), dir_ / "back", 2, kSilent); });
  expect_mention(error, scales.name + "' of ");
  expect_mention(error, "is damaged");
  expect_mention(error_of([&] { pack(before, dir_ / "again", 1, kSilent); }), "is packed already");
}

}  // namespace
}  // namespace canopy::testing
