#pragma once
#include <nlohmann/json_fwd.hpp>

#include "src/engine/engine.h"

namespace canopy::cli {

/// The sum over all counters for each token; null where none can be read, or for no token.
nlohmann::json joules_per_token(const Joules& used, double tokens);

/// Describes the energy that a generation used: in prefill, in decoding, per token of decoding, and
/// what each counter says of decoding; "missing" holds what could not be read, and why.
nlohmann::json energy_json(const EnergyMeter& meter, const BatchReport& report);

/// Says on stderr why no energy is counted, where none is.
void print_energy_note(const EnergyMeter& meter);

}  // namespace canopy::cli
