// Counts of the launches in a sweep: docs/results/gpu.md says what each costs.
#include <gtest/gtest.h>

#include <numeric>

#include "offload/streamer.h"
#include "src/convert/enlarge/random_checkpoint.h"
#include "src/model/transformer.h"
#include "tests/kernels/emulated_cuda.h"
#include "tests/temp_dir.h"
#include "tests/tiny_config.h"

namespace canopy {
namespace {

struct Launches {
  std::int64_t kernels = 0, products = 0;  // of our own, and calls of cuBLAS
  bool operator==(const Launches&) const = default;
  Launches operator-(const Launches& other) const {
    return {kernels - other.kernels, products - other.products};
  }
};
std::ostream& operator<<(std::ostream& out, const Launches& l) {
  return out << l.kernels << " kernels and " << l.products << " products";
}

/// Launches of a forward over a chain of `nodes` after `text` tokens, by a model of llama's kind in
/// BF16 with keys and values in F16.
Launches of_forward(int layers, int nodes, int text) {
  ModelConfig shape = tiny_config();
  shape.layers = layers;
  const TempDir dir;
  const Checkpoint model = write_random_checkpoint({shape}, LayerBytes::kShared, dir / "weights");
  EmulatedCuda device;
  const std::unique_ptr<Stream> compute = device.make_stream("compute");
  Notes notes;
  const std::unique_ptr<WeightSource> weights =
      load_resident(device, lay_out_sweep(model), {notes});
  KvCache kv(device, shape, text + nodes, {DType::kF16, DType::kF16});
  Transformer transformer(device, shape, *weights,
                          {.max_nodes = std::max(text, nodes),
                           .max_logit_rows = 1,
                           .max_context = text + nodes,
                           .chunk = 1024});
  const auto run = [&](int count) {
    const std::vector<TokenId> tokens(static_cast<std::size_t>(count), 5);
    std::vector<std::int32_t> position(tokens.size());
    std::iota(position.begin(), position.end(), kv.length());
    const std::int32_t last = count - 1;
    const SequenceRows part{{tokens, position, {}, 0, {&last, 1}}, &kv};
    transformer.forward({&part, 1}, *compute);
  };
  run(text);
  std::vector<NodeId> path(static_cast<std::size_t>(text));
  std::iota(path.begin(), path.end(), 0);
  kv.commit(path, *compute);
  const Launches before{device.card().kernels(), device.card().products()};
  run(nodes);
  compute->synchronize();
  return Launches{device.card().kernels(), device.card().products()} - before;
}

Launches of_layer(int nodes, int text) {
  return of_forward(2, nodes, text) - of_forward(1, nodes, text);
}

TEST(LaunchesOfALayer, OfAFewNodesAreThoseOfTheTable) {
  EXPECT_EQ(of_layer(8, 100), (Launches{12, 7}));
  EXPECT_EQ(of_layer(8, 1000), (Launches{13, 7}));
}

TEST(LaunchesOfALayer, OfManyNodesAreThoseOfTheTable) {
  EXPECT_EQ(of_layer(64, 100), (Launches{15, 9}));
  EXPECT_EQ(of_layer(64, 1000), (Launches{19, 13}));
}

TEST(LaunchesOfASweep, BesideItsLayersAreFew) {
  EXPECT_EQ(of_forward(1, 8, 100) - of_layer(8, 100), (Launches{8, 1}));
}

}  // namespace
}  // namespace canopy
