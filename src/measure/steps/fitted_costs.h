#pragma once
#include <span>
#include <string>
#include <vector>

#include "planner/hardware_profile.h"
#include "src/checkpoint/model_config.h"
#include "src/measure/steps/measured_samples.h"
#include "src/speculation/growers/shape_grower.h"

namespace canopy {

// Names of samples, and what their sizes are.
inline constexpr const char *kLink = "link", *kUpload = "upload";  // bytes
// Seconds that cores computed while a byte was read; the time is that of the read. The first is of
// single rows, and of as much as kLink.
inline constexpr const char* kLinkWhileComputing = "link next to arithmetic";
inline constexpr const char *kEmbed = "embed", *kAttention = "attention", *kMlp = "mlp",
                            *kHead = "head";              // rows
inline constexpr const char* kArithmetic = "arithmetic";  // rows; of all layers and the head
inline constexpr const char* kTimedAtRest = "at rest";    // the same, of weights that rest
// Tokens before the rows.
inline constexpr const char *kText = "text", *kTextOfOne = "text of one row",
                            *kTextAtRest = "text at rest",
                            *kTextOfOneAtRest = "text of one row at rest",
                            *kDraftText = "draft text", *kDraftTextOfOne = "draft text of one row";
inline constexpr const char* kVerify = "verify";  // nodes

/// Returns the name of samples of a kind of layer; the first kind's has no number.
std::string of_kind(const char* name, std::size_t kind);
const char* name_of(Drawing drawing);  // of a level's samples: rows

/// Rows that are timed after a long text, besides a single one.
inline constexpr int kRowsAfterText = 16;

Seconds median(std::vector<Seconds> times);  // of one at least
/// Bytes per second; 0 where nothing was timed.
double rate_of(std::span<const Sample> samples);
/// HardwareProfile::link_slowing from samples of kLinkWhileComputing; 0 where there are too few.
double slowing_of(std::span<const Sample> samples);

/// Makes a profile's costs of what was timed, all that is needed. `kinds`: of layers.
void put_costs(const MeasuredSamples& samples, std::span<const LayerConfig> kinds,
               HardwareProfile& profile);

}  // namespace canopy
