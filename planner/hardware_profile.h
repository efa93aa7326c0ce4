#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/curve.h"

namespace canopy {

/// More seconds of attention for each token of the text before its rows. Rows of one text read its
/// keys and values together, so that the first takes more than another.
struct ContextCost {
  Seconds once{}, per_row{};
  Seconds at(double rows, double texts) const { return texts * once + rows * per_row; }
};

/// Costs of one pair of models on one machine, as measured on real sweeps, or modelled; rows are
/// tokens that a forward runs over. Plain data, kept between runs as JSON.
struct HardwareProfile {
  std::string machine;        // device, threads, cores
  std::string target, draft;  // fingerprints of the models; draft empty without one
  std::string version, date;  // of the program, of the measurement
  std::string code = {};      // a hash of the sources that were measured; empty: nobody says

  bool modelled = false;           // from data sheets: nothing of it was measured
  std::uint64_t memory_bytes = 0;  // of the machine, and of its GPU; 0: nobody says
  std::uint64_t gpu_memory_bytes = 0;

  double link_bytes_per_second = 0;  // from disk, while no core computes
  /// Seconds by which reads take longer for each second that the cores compute next to them; below
  /// 1. On a virtual machine its reads may be paid for with its cores.
  double link_slowing = 0;
  double upload_bytes_per_second = 0;  // to a device with memory of its own; 0: none such
  Curve embed = {};                    // rows -> s, fetching their embeddings from disk
  /// A kind of layer: rows -> s of each unit's arithmetic, after a short text. A curve of a
  /// unit that it lacks has no knots.
  struct LayerCosts {
    Curve attention = {}, mlp = {};
    ContextCost context = {};
    std::optional<ContextCost> context_at_rest = {};  // the same, nothing being read
  };
  std::vector<LayerCosts> layers = std::vector<LayerCosts>(1);  // as ModelConfig::layer_kinds
  Curve head = {};     // rows -> s, final norm and all slices
  Curve at_rest = {};  // rows -> s of all layers and the head, nothing being read; or no knots
  Seconds verify{};    // per accepted node: its probabilities, the draw

  /// The draft: rows -> s of one level, its children drawn and brought to the host.
  struct DraftCosts {
    Curve level_greedy, level_sampled;
    ContextCost context = {};  // of all layers
  };
  std::optional<DraftCosts> drafting = {};

  bool of_gpu() const { return upload_bytes_per_second > 0; }
};

/// The profile as a JSON text, and back. Throws Error naming the member that is missing or wrong.
std::string to_json(const HardwareProfile& profile);
HardwareProfile hardware_profile_from_json(std::string_view json);

}  // namespace canopy
