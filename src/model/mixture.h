#pragma once
// Private to the transformer: layers whose MLP is a mixture of experts.
#include <cstdint>
#include <stop_token>
#include <vector>

#include "kernels/device.h"
#include "offload/weight_source.h"
#include "src/checkpoint/model_config.h"
#include "src/model/expert_groups.h"

namespace canopy {

/// The rows of a sweep in a mixture, and its scratch. Shapes: residual, normed [n, dim] f32.
struct MixtureRows {
  TensorView residual, normed;
  std::byte* work;    // scores of a chunk
  std::byte* routes;  // BufferSizes::routes
};

/// The mixture after the one that runs; no weights where they are not at hand.
struct NextMixture {
  int layer = 0;
  const UnitWeights* weights = nullptr;
};

/// Runs the mixtures of a model. One thread at a time.
class Mixture {
 public:
  /// `chunk`: the most rows that are worked on at once.
  Mixture(Device& device, const ModelConfig& config, int chunk)
      : device_(device), config_(config), chunk_(chunk) {}

  /// Adds what a layer's experts give to the residual, each expert once for all rows of the sweep:
  /// those of the unit, or where it has none those that the source lends. Throws Stopped where
  /// `stop` is requested while it waits for one.
  void run(const UnitWeights& w, int layer, const MixtureRows& rows, ExpertSource* source,
           const NextMixture& next, Stream& compute, const std::stop_token& stop);

 private:
  /// MixtureRows::routes as tensors. Shapes: chosen [n, active] i32; weight [n, active] f32;
  /// shared_weight [n, 1] f32, or [n, 0]; all_weights: both of these; rows [all, 2] i32.
  struct Routes {
    TensorView chosen, weight, shared_weight, all_weights, rows;
  };
  Routes routes(std::byte* at, std::int64_t n) const;
  void guess(const NextMixture& next, const MixtureRows& rows, Stream& compute);
  void rank_guesses();
  void choose(const UnitWeights& w, const MixtureRows& rows, const Routes& to, Stream& compute);

  Device& device_;
  const ModelConfig& config_;
  int chunk_;
  ExpertGroups groups_;  // of the layer that runs
  // What the rows would choose at the next one, were they done.
  std::vector<std::int32_t> guessed_;
  std::vector<float> guess_weight_;
  std::vector<std::int32_t> likely_;  // each once, the likeliest first
  std::vector<double> weight_of_;     // by expert

 public:
  struct Dump { char kind; std::int32_t e; double m; int absent; };
  std::vector<Dump> dump_;
  std::vector<std::int32_t> last_guess_;
  std::vector<std::uint64_t> right_, made_, cached_right_, cached_made_;
  ~Mixture();
};

}  // namespace canopy
