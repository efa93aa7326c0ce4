#include "src/convert/enlarge/inflate.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <csignal>
#include <functional>
#include <numeric>
#include <set>

#include "src/base/error.h"
#include "src/base/file_writer.h"
#include "src/base/formats/half.h"
#include "src/checkpoint/fingerprint.h"
#include "src/checkpoint/model_tensors.h"
#include "src/convert/enlarge/enlargement.h"
#include "src/convert/enlarge/random_weights.h"
#include "src/convert/source_files.h"
#include "src/convert/weight_rows.h"
#include "tests/convert/tiny_outputs.h"

namespace canopy {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSize = 6'000'000;  // of the tiny models: more layers than they have

void ignore(std::uint64_t, std::uint64_t) {}

InflateRequest request_in(const TempDir& dir, std::uint64_t seed = 1) {
  return {
      .output = dir.path() / "big", .small = dir.path() / "small", .bytes = kSize, .seed = seed};
}

std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> result;
  for (const float value : values) result.push_back(std::bit_cast<std::uint32_t>(value));
  return result;
}

class Inflate : public ::testing::TestWithParam<const char*> {
 protected:
  const TempDir dir_;
  const Checkpoint source_ = test::tiny_model(GetParam());
};

TEST_P(Inflate, KeepsEveryBitOfTheLogits) {
  inflate(source_, request_in(dir_), ignore);
  const Checkpoint small = Checkpoint::open(dir_.path() / "small"),
                   big = Checkpoint::open(dir_.path() / "big");
  const std::vector<float> logits = test::logits_of(small);
  EXPECT_EQ(bits(test::logits_of(big)), bits(logits));

  ModelConfig wrong = big.config();  // the comparison must be able to fail
  wrong.norm_eps *= 4;
  EXPECT_NE(bits(test::logits_of(big, wrong)), bits(logits));
}

TEST_P(Inflate, GrowsToTheSizeAskedForAndSaysSo) {
  inflate(source_, request_in(dir_), ignore);
  const Checkpoint big = Checkpoint::open(dir_.path() / "big");
  std::uint64_t bytes = 0;
  for (const TensorEntry& tensor : big.tensors()) {
    EXPECT_EQ(tensor.dtype, DType::kBF16);
    bytes += tensor.bytes;
  }
  EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(kSize), 0.05 * kSize);
  EXPECT_EQ(bytes, bf16_bytes(big.config()));
  EXPECT_EQ(big.config().dim % (4 * source_.config().dim), 0);
  EXPECT_GT(big.config().layers, source_.config().layers);
  EXPECT_EQ(big.config().inflated_from, model_name(source_));
  EXPECT_EQ(big.config().inflated_source, source_fingerprint(source_));
  EXPECT_EQ(big.config().widen * source_.config().dim, big.config().dim);
  EXPECT_EQ(Checkpoint::open(dir_.path() / "small").config().inflated_from, "");
}

/// The small model in BF16 is the source, value by value, whatever order the source keeps Q and K
/// in.
TEST_P(Inflate, RoundsTheSmallModelToBf16) {
  inflate(source_, request_in(dir_), ignore);
  const Checkpoint small = Checkpoint::open(dir_.path() / "small");
  EXPECT_EQ(small.config().norm_eps, source_.config().norm_eps);
  EXPECT_EQ(small.config().query_beta, source_.config().query_beta);
  EXPECT_EQ(small.config().query_period, source_.config().query_period);
  EXPECT_NEAR(small.config().rope_magnitude, source_.config().rope_magnitude, 0x1p-23f);
  ASSERT_EQ(small.config().rope_inverse_frequency.size(),
            source_.config().rope_inverse_frequency.size());
  for (std::size_t i = 0; i < small.config().rope_inverse_frequency.size(); ++i) {
    const float expected = source_.config().rope_inverse_frequency[i];
    // A GGUF file's frequency factors round once more than config.json's own numbers.
    EXPECT_NEAR(small.config().rope_inverse_frequency[i], expected, 1e-6f * expected);
  }
  WeightRows theirs(source_), ours(small);
  for (const TensorEntry& tensor : small.tensors()) {
    const TensorEntry* source = source_.find(tensor.name);
    ASSERT_NE(source, nullptr) << tensor.name;
    std::vector<float> expected(static_cast<std::size_t>(WeightRows::columns(tensor)));
    std::vector<float> got(expected.size());
    for (std::int64_t row = 0; row < WeightRows::rows(tensor); ++row) {
      theirs.read(*source, row, expected);
      ours.read(tensor, row, got);
      for (float& value : expected) value = f32_from_bf16(bf16_from_f32(value));
      ASSERT_EQ(got, expected) << tensor.name << " row " << row;
    }
  }
}

InflateRequest experts_in(const TempDir& dir, int experts, int active) {
  return {.output = dir.path() / "big",
          .small = dir.path() / "small",
          .experts = experts,
          .active = active,
          .seed = 3};
}

class InflateExperts : public ::testing::TestWithParam<const char*> {
 protected:
  const TempDir dir_;
};

TEST_P(InflateExperts, ComputeTheSameFunctionFromBytesOfTheirOwn) {
  inflate(test::tiny_model(GetParam()), experts_in(dir_, 5, 2), ignore);
  const Checkpoint small = Checkpoint::open(dir_.path() / "small"),
                   big = Checkpoint::open(dir_.path() / "big");
  EXPECT_EQ(big.config().architecture, "mixtral");
  EXPECT_EQ(big.config().experts.count, 5);
  EXPECT_EQ(big.config().experts.active, 2);
  EXPECT_NE(big.config().inflated_from, "");
  const std::vector<float> expected = test::logits_of(small), got = test::logits_of(big);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-4f * (1 + std::abs(expected[i])));

  WeightRows rows(big);
  std::set<std::vector<float>> matrices;
  for (int expert = 0; expert < 5; ++expert)
    for (const TensorRole role :
         {TensorRole::kExpertGate, TensorRole::kExpertUp, TensorRole::kExpertDown}) {
      const TensorEntry* const tensor = big.find(tensor_name(role, 1, expert));
      ASSERT_NE(tensor, nullptr);
      std::vector<float> matrix, row(static_cast<std::size_t>(WeightRows::columns(*tensor)));
      for (std::int64_t i = 0; i < WeightRows::rows(*tensor); ++i) {
        rows.read(*tensor, i, row);
        matrix.insert(matrix.end(), row.begin(), row.end());
      }
      EXPECT_TRUE(matrices.insert(matrix).second) << "expert " << expert;
    }
}

INSTANTIATE_TEST_SUITE_P(Llamas, InflateExperts, ::testing::Values("llama2", "llama3", "smollm2"));

TEST(InflateExpertsRefused, OtherFamiliesAndFewerThanCompute) {
  const TempDir dir;
  EXPECT_THROW(inflate(test::tiny_model("qwen3"), experts_in(dir, 4, 2), ignore), Error);
  EXPECT_THROW(inflate(test::tiny_model("llama2"), experts_in(dir, 2, 3), ignore), Error);
  EXPECT_FALSE(fs::exists(dir.path() / "big"));
}

INSTANTIATE_TEST_SUITE_P(Families, Inflate,
                         ::testing::Values("llama2", "llama3", "llama_linear", "llama_yarn",
                                           "mistral", "qwen2", "qwen3", "smollm2", "llama.gguf",
                                           "llama3.gguf", "qwen2.gguf", "qwen3.gguf", "ministral3",
                                           "ministral3.gguf", "mistral3", "mistral3_tied",
                                           "seed_oss", "seed_oss.gguf", "exaone"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name)
                             if (c == '.') c = '_';
                           return name;
                         });

TEST(InflateOutput, IsTheSameBytesForTheSameSeedOnly) {
  const Checkpoint source = test::tiny_model("llama2");
  const TempDir first, again, other;
  inflate(source, request_in(first, 5), ignore);
  inflate(source, request_in(again, 5), ignore);
  inflate(source, request_in(other, 6), ignore);
  const auto bytes = [](const TempDir& dir, const char* model) {
    return test::contents(dir.path() / model / "model.safetensors");
  };
  EXPECT_EQ(bytes(first, "big"), bytes(again, "big"));
  EXPECT_NE(bytes(first, "big"), bytes(other, "big"));
  EXPECT_EQ(bytes(first, "small"), bytes(other, "small"));
}

TEST(InflateOutput, LeavesNothingBehindWhenTheDiskRefuses) {
  const Checkpoint source = test::tiny_model("llama2");
  const TempDir dir;
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit tight{1'000'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  std::string message;
  try {
    inflate(source, request_in(dir), ignore);
  } catch (const Error& e) {
    message = e.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(message.find("big.canopy-partial/model.safetensors"), std::string::npos) << message;
  EXPECT_NE(message.find("needs 5."), std::string::npos) << message;
  EXPECT_TRUE(test::entries(dir.path()).empty());
}

TEST(InflateOutput, LeavesNothingBehindWhenStopped) {
  const TempDir dir;
  const auto stop = [](std::uint64_t done, std::uint64_t total) {
    if (done > total / 2) throw Stopped();
  };
  EXPECT_THROW(inflate(test::tiny_model("llama2"), request_in(dir), stop), Stopped);
  EXPECT_TRUE(test::entries(dir.path()).empty());
}

TEST(InflateOutput, ReplacesNothing) {
  const Checkpoint source = test::tiny_model("llama2");
  const TempDir dir;
  fs::create_directory(dir.path() / "big");  // empty: taken
  inflate(source, request_in(dir), ignore);
  const fs::path weights = dir.path() / "big" / "model.safetensors";
  const std::string before = test::contents(weights);
  EXPECT_THROW(inflate(source, request_in(dir, 2), ignore), Error);
  fs::remove_all(dir.path() / "small");
  EXPECT_THROW(inflate(source, request_in(dir, 2), ignore), Error);
  EXPECT_EQ(test::contents(weights), before);
  EXPECT_EQ(test::entries(dir.path()), std::vector<std::string>{"big"});
}

/// A run that is killed between its two renames leaves the small model alone.
TEST(InflateOutput, GoesOnFromASmallModelThatIsThereAlready) {
  const Checkpoint source = test::tiny_model("llama2");
  const TempDir dir;
  inflate(source, request_in(dir), ignore);
  const fs::path big = dir.path() / "big" / "model.safetensors",
                 small = dir.path() / "small" / "model.safetensors";
  const std::string weights = test::contents(big);
  fs::rename(dir.path() / "big", dir.path() / "big.canopy-partial");
  const auto written = fs::last_write_time(small);
  inflate(source, request_in(dir), ignore);
  EXPECT_EQ(test::contents(big), weights);
  EXPECT_EQ(fs::last_write_time(small), written);
  EXPECT_EQ(test::entries(dir.path()).size(), 2u);
}

TEST(InflateOutput, RefusesASmallModelThatDiffersBeforeTheBigOneIsWritten) {
  const Checkpoint source = test::tiny_model("llama2");
  const TempDir dir;
  inflate(source, request_in(dir), ignore);
  fs::remove_all(dir.path() / "big");
  const fs::path small = dir.path() / "small", weights = small / "model.safetensors";
  const std::string same = test::contents(weights);
  const auto refused = [&] {
    std::uint64_t most = 0;
    EXPECT_THROW(inflate(source, request_in(dir),
                         [&](std::uint64_t done, std::uint64_t) { most = std::max(most, done); }),
                 Error);
    EXPECT_LE(most, same.size());
    EXPECT_EQ(test::entries(dir.path()), std::vector<std::string>{"small"});
  };
  std::string changed = same;
  changed.back() ^= 1;
  for (const std::string& other : {changed, same + '\0', same.substr(0, same.size() - 1)}) {
    write_file(weights, other);
    refused();
    EXPECT_EQ(test::contents(weights), other);
  }
  write_file(weights, same);
  write_file(small / "notes.txt", "mine");
  refused();
  fs::remove(small / "notes.txt");
  fs::remove(small / "config.json");
  refused();
}

TEST(InflateOutput, RefusesAPlaceThatIsNoDirectory) {
  const TempDir dir;
  test::write_file(dir.path() / "file", {});
  InflateRequest request = request_in(dir);
  request.output = dir.path() / "file" / "big";
  EXPECT_THROW(inflate(test::tiny_model("llama2"), request, ignore), Error);
  EXPECT_EQ(test::entries(dir.path()), std::vector<std::string>{"file"});
}

TEST(Enlargement, MeetsSizesFromOneToAHundredGigabytes) {
  ModelConfig smollm2;
  smollm2.architecture = "llama";
  smollm2.layers = 30, smollm2.dim = 576, smollm2.hidden_dim = 1536;
  smollm2.heads = 9, smollm2.kv_heads = 3, smollm2.head_dim = 64;
  smollm2.vocab = 49152, smollm2.tied_head = true;
  for (const double gigabytes : {1.08, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0, 30.0, 70.0, 140.0}) {
    SCOPED_TRACE(gigabytes);
    const auto bytes = static_cast<std::uint64_t>(gigabytes * 1e9);
    const ModelConfig big = enlarge(smollm2, bytes);
    EXPECT_NEAR(static_cast<double>(bf16_bytes(big)), gigabytes * 1e9, 0.02 * gigabytes * 1e9);
    EXPECT_GE(big.hidden_dim, smollm2.hidden_dim);
    EXPECT_EQ(big.heads * smollm2.kv_heads, smollm2.heads * big.kv_heads);
    EXPECT_EQ(big.dim % big.heads, 0);  // other readers ask for this
    EXPECT_LE(big.layers, 128);
    EXPECT_EQ(big.norm_eps * static_cast<float>(big.dim / smollm2.dim), smollm2.norm_eps);
  }
  EXPECT_EQ(enlarge(smollm2, 20'000'000'000).dim, 4 * 576);
  EXPECT_EQ(enlarge(smollm2, 70'000'000'000).dim, 16 * 576);
  EXPECT_THROW(enlarge(smollm2, 500'000'000), Error);
  EXPECT_THROW(enlarge(smollm2, std::uint64_t{1} << 62), Error);
}

TEST(Enlargement, SpreadsTheSmallModelsLayersEvenlyAndInOrder) {
  for (int small = 1; small <= 40; ++small) {
    for (int big = small; big <= 130; ++big) {
      int next = 0, last = -1;
      for (int layer = 0; layer < big; ++layer) {
        const int from = source_layer(layer, small, big);
        if (from < 0) continue;
        ASSERT_EQ(from, next++) << small << " in " << big;
        if (last >= 0) {
          ASSERT_LE(layer - last, big / small + 1);
        }
        last = layer;
      }
      ASSERT_EQ(next, small) << small << " in " << big;
    }
  }
}

TEST(RandomWeights, AreFiniteNormalAndOfAModelsSpread) {
  std::vector<std::uint16_t> values(100'000);
  RandomWeights(3).fill(RandomWeights::hash("a"), 0, values);
  double sum = 0, squares = 0;
  for (const std::uint16_t value : values) {
    const double x = static_cast<double>(f32_from_bf16(value));
    ASSERT_GE(std::abs(x), 0x1p-14);
    ASSERT_LT(std::abs(x), 0x1p-4);
    sum += x;
    squares += x * x;
  }
  // 0.022 is the distribution's own spread; five standard errors of 100,000 values.
  EXPECT_NEAR(sum / 1e5, 0, 5 * 0.0221 / std::sqrt(1e5));
  EXPECT_NEAR(std::sqrt(squares / 1e5), 0.0221, 0.0004);
}

TEST(RandomWeights, DependOnSeedTensorAndRowButNotOnLength) {
  std::set<std::vector<std::uint16_t>> seen;
  for (const std::uint64_t seed : {1u, 2u})
    for (const char* tensor : {"a", "b"})
      for (const std::uint32_t row : {0u, 1u}) {
        std::vector<std::uint16_t> values(21), more(64);
        RandomWeights(seed).fill(RandomWeights::hash(tensor), row, values);
        RandomWeights(seed).fill(RandomWeights::hash(tensor), row, more);
        more.resize(values.size());
        EXPECT_EQ(values, more);
        seen.insert(values);
      }
  EXPECT_EQ(seen.size(), 8u);
}

}  // namespace
}  // namespace canopy
