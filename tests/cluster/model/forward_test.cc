// Whole forward passes of ranks that share a model's rows: the first has the bits of one process.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "offload/streamer.h"
#include "src/convert/pack/pack.h"
#include "src/model/transformer.h"
#include "tests/checkpoint/checkpoint_files.h"
#include "tests/cluster/model/models.h"
#include "tests/cluster/thread_ranks.h"
#include "tests/test_data.h"

namespace canopy::testing {
namespace {

enum class Weights { kStay, kTravel };
constexpr int kPrompt = 11, kSweeps = 2;

/// The logits of a prompt and of a tree below it, in each of two sweeps, and the last layer's rows.
std::vector<float> forward(const Checkpoint& checkpoint, const Share& share, Ranks* ranks,
                           Weights where) {
  const auto device = make_device({.threads = 1});
  const ModelConfig& config = checkpoint.config();
  const SweepLayout layout = lay_out_sweep(checkpoint, ExpertsAre::kInUnits, share);
  Notes notes;
  std::unique_ptr<WeightSource> weights;
  const Residency none = none_resident(layout);
  if (where == Weights::kTravel && travelling_bytes(layout, none) > 0)
    weights = std::make_unique<Streamer>(*device, layout, none,
                                         StreamerOptions{.ring_bytes = least_ring(layout, none)});
  else
    weights = load_resident(*device, layout, {notes});
  constexpr int kNodes = 5, kAll = kPrompt + kNodes;
  Transformer model(*device, config, *weights,
                    {.max_nodes = kAll,
                     .max_tree = kNodes,
                     .max_logit_rows = kNodes,
                     .max_context = 2 * kAll,
                     .chunk = 6},
                    ranks);
  KvCache kv(*device, config, 2 * kAll, {});
  const auto stream = device->make_stream("compute");
  std::vector<TokenId> tokens(kPrompt), nodes(kNodes);
  for (int i = 0; i < kPrompt; ++i)
    tokens[static_cast<std::size_t>(i)] = (i * 7 + 2) % config.vocab;
  for (int i = 0; i < kNodes; ++i) nodes[static_cast<std::size_t>(i)] = (i * 5 + 1) % config.vocab;
  std::vector<std::int32_t> position(kPrompt);
  std::iota(position.begin(), position.end(), 0);
  // 0 with the children 1 and 2; 3 below 1, 4 below 2.
  const std::vector<std::int32_t> depth{kPrompt, kPrompt + 1, kPrompt + 1, kPrompt + 2,
                                        kPrompt + 2};
  const std::vector<std::uint64_t> bits{0b1, 0b11, 0b101, 0b1011, 0b10101};
  std::vector<std::int32_t> rows(kNodes);
  std::iota(rows.begin(), rows.end(), 0);
  const std::array parts{SequenceRows{{tokens, position, {}, 0, {}}, &kv, 0},
                         SequenceRows{{nodes, depth, bits, 0, rows}, &kv, kPrompt}};
  std::vector<float> out;
  const auto add = [&](const ConstTensorView& values) {
    const auto* const first = reinterpret_cast<const float*>(values.data());
    stream->synchronize();
    out.insert(out.end(), first, first + values.bytes() / sizeof(float));
  };
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    const ConstTensorView logits = model.forward(parts, *stream);
    stream->synchronize();
    if (ranks == nullptr || ranks->share().rank == 0) add(logits);
    add(model.hidden());
  }
  return out;
}

/// Expects the bits of one process on ranks with these parts: all of them on the first, and the
/// last layer's rows on each.
void expect_equal(const Checkpoint& checkpoint, const std::vector<std::int64_t>& parts,
                  std::int64_t block, Weights where) {
  const std::vector<float> whole = forward(checkpoint, {}, nullptr, Weights::kStay);
  std::vector<std::vector<float>> of_rank(parts.size());
  const auto errors = on_ranks(
      parts,
      [&](Cluster& cluster) {
        of_rank[static_cast<std::size_t>(cluster.share().rank)] =
            forward(checkpoint, cluster.share(), &cluster, where);
      },
      {}, block);
  for (const std::string& error : errors) ASSERT_EQ(error, "");
  EXPECT_EQ(of_rank[0], whole) << parts.size() << " ranks, blocks of " << block << " rows";
  const std::size_t hidden =
      static_cast<std::size_t>(kPrompt + 5) * static_cast<std::size_t>(checkpoint.config().dim);
  for (std::size_t rank = 1; rank < parts.size(); ++rank) {
    ASSERT_EQ(of_rank[rank].size(), kSweeps * hidden);
    EXPECT_TRUE(std::equal(of_rank[rank].end() - static_cast<std::ptrdiff_t>(hidden),
                           of_rank[rank].end(), whole.end() - static_cast<std::ptrdiff_t>(hidden)))
        << "rank " << rank;
  }
}

TEST(RanksForward, EqualsOneProcessBitForBitForEachModel) {
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test_data() / "model")) {
    const std::string name = entry.path().filename();
    if (!entry.is_directory() && entry.path().extension() != ".gguf") continue;
    SCOPED_TRACE(name);
    if (is_read_by_pack_alone(entry.path())) continue;
    const Checkpoint checkpoint = Checkpoint::open(entry.path());
    if (checkpoint.config().recurrent()) continue;  // refused, below
    // FP8 is cut between its blocks of scales; then a rank may have no row of anything.
    const std::int64_t block = name.find("fp8") != std::string::npos ? 128 : 16;
    expect_equal(checkpoint, {1, 1}, block, Weights::kStay);
    expect_equal(checkpoint, {2, 1, 1}, block, Weights::kTravel);
    ++models;
  }
  EXPECT_GT(models, 50);
}

TEST(RanksForward, RefusesRecurrentLayersByName) {
  const Checkpoint checkpoint = Checkpoint::open(test_data() / "model/qwen3_5");
  const auto errors = on_ranks({1, 1}, [&](Cluster& cluster) {
    forward(checkpoint, cluster.share(), &cluster, Weights::kStay);
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("recurrent layers"), std::string::npos) << error;
}

class RanksForwardOfFormat : public ::testing::TestWithParam<WeightFormat> {};

TEST_P(RanksForwardOfFormat, EqualsOneProcessBitForBit) {
  const TempDir dir;
  const bool wide = GetParam().block_elements == 256;
  const TinyModel model = tiny_model({.dim = 256,
                                      .hidden_dim = 512,
                                      .head_dim = 64,
                                      .vocab = wide ? 300 : 390,
                                      .matrices = GetParam().dtype});
  write_file(dir / "model.gguf", gguf_writer(model).bytes());
  const Checkpoint checkpoint = Checkpoint::open(dir / "model.gguf");
  expect_equal(checkpoint, {1, 1}, 128, Weights::kTravel);
  expect_equal(checkpoint, {1, 2, 1}, 128, Weights::kStay);
}

INSTANTIATE_TEST_SUITE_P(Formats, RanksForwardOfFormat, ::testing::ValuesIn(as_data(GgufBlocks())),
                         [](const auto& info) { return std::string(info.param.name); });

/// A model wide enough for each of four ranks to have rows of each matrix but k and v.
TinyModel wide_model() {
  return tiny_model({.dim = 512, .hidden_dim = 1100, .heads = 8, .head_dim = 64, .vocab = 900});
}

TEST(RanksForward, EqualsOneProcessOnOneToFourRanks) {
  const TempDir dir;
  write_hugging_face(dir / "model", wide_model());
  const Checkpoint checkpoint = Checkpoint::open(dir / "model");
  for (const std::vector<std::int64_t>& parts :
       {std::vector<std::int64_t>{1}, {1, 1}, {3, 1}, {1, 1, 1}, {1, 1, 1, 1}})
    for (const Weights where : {Weights::kStay, Weights::kTravel})
      expect_equal(checkpoint, parts, 128, where);
}

TEST(RanksForward, EqualsOneProcessWithPackedWeights) {
  const TempDir dir;
  write_hugging_face(dir / "model", wide_model());
  pack(Checkpoint::open(dir / "model"), dir / "packed", 2, [](std::uint64_t, std::uint64_t) {});
  const Checkpoint checkpoint = Checkpoint::open(dir / "packed");
  for (const Weights where : {Weights::kStay, Weights::kTravel})
    expect_equal(checkpoint, {1, 1, 1}, 128, where);
}

/// Four exchanges for each layer and chunk of rows, and one for the head, with the bytes of the
/// columns that are gathered.
TEST(RanksForward, ExchangesWhatIsPredicted) {
  const TempDir dir;
  write_hugging_face(dir / "model", wide_model());
  const Checkpoint checkpoint = Checkpoint::open(dir / "model");
  constexpr std::uint64_t kRows = kPrompt + 5, kChunks = 3, kLayers = 2;
  std::atomic<std::uint64_t> bytes = 0;
  on_ranks({1, 1, 1}, [&](Cluster& cluster) {
    forward(checkpoint, cluster.share(), &cluster, Weights::kStay);
    EXPECT_EQ(cluster.totals().exchanges, kSweeps * (4 * kLayers * kChunks + 1));
    bytes += cluster.totals().bytes_sent;
  });
  const std::uint64_t columns = 512 + 2 * 128 + 512 + 1100 + 512,  // q, k, v; o; gate and up; down
      head = 900 - static_cast<std::uint64_t>(Share{0, {1, 1, 1}}.own(900).count);
  // Each column goes from one rank to both others; those of the head to the first alone.
  EXPECT_EQ(bytes, sizeof(float) * kSweeps * (2 * kRows * kLayers * columns + 5 * head));
}

TEST(RanksForward, StopsOnAllRanksWhereTheFirstIsAskedTo) {
  const Checkpoint checkpoint = Checkpoint::open(test_data() / "model" / "llama2");
  std::atomic<int> stopped = 0;
  const auto errors = on_ranks(
      {1, 1},
      [&](Cluster& cluster) {
        const auto device = make_device({.threads = 1});
        Notes notes;
        const SweepLayout layout = lay_out_sweep(checkpoint, ExpertsAre::kInUnits, cluster.share());
        const auto weights = load_resident(*device, layout, {notes});
        Transformer model(*device, checkpoint.config(), *weights,
                          {.max_nodes = 1, .max_logit_rows = 1, .max_context = 8}, &cluster);
        KvCache kv(*device, checkpoint.config(), 8, {});
        const auto stream = device->make_stream("compute");
        const std::vector<TokenId> token{1};
        const std::vector<std::int32_t> position{0};
        const SequenceRows part{{token, position, {}, 0, position}, &kv};
        std::stop_source source;
        if (cluster.share().rank == 0) source.request_stop();
        EXPECT_THROW(model.forward({&part, 1}, *stream, source.get_token()), Stopped);
        ++stopped;
        // The next sweep runs as if nothing had been.
        model.forward({&part, 1}, *stream);
      },
      {}, 16);
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_EQ(stopped, 2);
}

}  // namespace
}  // namespace canopy::testing
