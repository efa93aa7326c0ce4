#include "src/checkpoint/fingerprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "src/base/formats/grouped_format.h"
#include "tests/error_of.h"
#include "tests/temp_dir.h"

namespace canopy {
namespace {

namespace fs = std::filesystem;
const fs::path kModels = fs::path(CANOPY_TEST_DATA) / "model";

/// Adds one to the byte in the middle of a tensor.
void change(const Checkpoint& model, const TensorEntry& tensor) {
  std::fstream file(model.files()[static_cast<std::size_t>(tensor.file)],
                    std::ios::binary | std::ios::in | std::ios::out);
  const auto at = static_cast<std::streamoff>(tensor.offset + tensor.bytes / 2);
  const int byte = file.seekg(at).get();
  file.seekp(at).put(static_cast<char>(byte + 1));
  ASSERT_TRUE(file.flush().good());
}

TEST(Fingerprint, IsTheSameForACopyAndForOneCutIntoShards) {
  const std::string original = fingerprint(Checkpoint::open(kModels / "llama2"));
  EXPECT_EQ(original.size(), 16u);
  const TempDir dir;
  fs::copy(kModels / "llama2", dir / "another name", fs::copy_options::recursive);
  EXPECT_EQ(fingerprint(Checkpoint::open(dir / "another name")), original);
  EXPECT_EQ(fingerprint(Checkpoint::open(kModels / "llama2_shards")), original);
}

TEST(Fingerprint, ChangesWithEveryTensor) {
  const TempDir dir;
  fs::copy(kModels / "llama2", dir / "tuned", fs::copy_options::recursive);
  const Checkpoint model = Checkpoint::open(dir / "tuned");
  std::string last = fingerprint(model);
  for (const TensorEntry& tensor : model.tensors()) {
    change(model, tensor);
    const std::string now = fingerprint(model);
    EXPECT_NE(now, last) << tensor.name;
    last = now;
  }
}

TEST(Fingerprint, ChangesWithTheConfigOfTheSameWeights) {
  const Checkpoint model = Checkpoint::open(kModels / "llama2");
  const auto with = [&](const auto& edit) {
    ModelConfig config = model.config();
    edit(config);
    return fingerprint(
        Checkpoint(model.root(), model.files(), model.tensors(), config, model.metadata()));
  };
  const std::string same = with([](ModelConfig&) {});
  EXPECT_EQ(same, fingerprint(model));
  EXPECT_NE(same, with([](ModelConfig& c) { c.norm_eps *= 2; }));
  EXPECT_NE(same, with([](ModelConfig& c) { c.rope_inverse_frequency.back() *= 2; }));
  EXPECT_NE(same, with([](ModelConfig& c) { c.rope_magnitude = 2; }));
  EXPECT_NE(same, with([](ModelConfig& c) { c.architecture = "mistral"; }));
  EXPECT_NE(same, with([](ModelConfig& c) { c.layer_kinds.front().qk_norm = true; }));
  EXPECT_NE(same, with([](ModelConfig& c) { c.layer_kinds.push_back({.qk_norm = true}); }));
  EXPECT_NE(same, with([](ModelConfig& c) { c.layer_kinds.front().kv_heads = 1; }));
  EXPECT_NE(same, with([](ModelConfig& c) { c.layer_kinds.front().mlp = false; }));
  EXPECT_NE(same, with([](ModelConfig& c) { c.kind_of_layer.assign(2, 0); }));
  EXPECT_NE(same, with([](ModelConfig& c) { c.rope_of_kind = {c.rope_inverse_frequency}; }));
}

TEST(Fingerprint, ChangesWithTheGroupsOfColumns) {
  const Checkpoint model =
      Checkpoint::open(kModels / "llama_order", Holes::kRefused, Rows::kToBeMade);
  std::vector<TensorEntry> tensors = model.tensors();
  const auto one = std::ranges::find_if(
      tensors, [](const TensorEntry& t) { return find_grouped_format(t.dtype) != nullptr; });
  ASSERT_NE(one, tensors.end());
  const GroupedFormat& format = *find_grouped_format(one->dtype);
  const auto columns = static_cast<std::size_t>(one->shape[1]);
  std::vector<std::int32_t> groups(columns);
  const std::byte* const companion = one->companion.bytes().data();
  for (std::size_t k = 0; k < columns; ++k)
    groups[k] = format::I4Grouped::group(companion, static_cast<std::int64_t>(k));
  const auto other = std::ranges::find_if(groups, [&](int g) { return g != groups[0]; });
  ASSERT_NE(other, groups.end());
  std::swap(groups[0], *other);
  one->companion = companion_of_groups(format, groups, one->shape[0]);
  EXPECT_NE(fingerprint(Checkpoint(model.root(), model.files(), std::move(tensors), model.config(),
                                   model.metadata())),
            fingerprint(model));
}

/// Profiles and measured acceptance are kept under these.
TEST(Fingerprint, OfAModelNeverChanges) {
  for (const auto& [model, digits] : {std::pair{"llama2", "5ad6187d091cc4d6"},
                                      {"mistral", "6e4bebb6f3313fd3"},
                                      {"qwen2", "efa887e58d24e2b8"},
                                      {"qwen3", "5ed4834202f0ed6b"},
                                      {"llama3.gguf", "ce48a82a5e35b422"},
                                      {"qwen2.gguf", "4d775f3fa83a8741"}})
    EXPECT_EQ(fingerprint(Checkpoint::open(kModels / model)), digits) << model;
}

TEST(Fingerprint, NamesAFileThatIsGone) {
  const TempDir dir;
  fs::copy(kModels / "llama2", dir / "gone", fs::copy_options::recursive);
  const Checkpoint model = Checkpoint::open(dir / "gone");
  fs::remove(model.files().front());
  EXPECT_NE(error_of([&] { fingerprint(model); }).find(model.files().front().string()),
            std::string::npos);
}

}  // namespace
}  // namespace canopy
