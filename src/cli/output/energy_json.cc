#include "src/cli/output/energy_json.h"

#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "src/cli/output/aside.h"

namespace canopy::cli {

using nlohmann::json;

json joules_per_token(const Joules& used, double tokens) {
  if (used.empty() || tokens <= 0) return json();
  return std::accumulate(used.begin(), used.end(), 0.0) / tokens;  // JSON writes a NaN as null
}

json energy_json(const EnergyMeter& meter, const BatchReport& report) {
  json out{{"prefill_joules", joules_per_token(report.prefill_energy, 1)},
           {"decode_joules", joules_per_token(report.decode_energy, 1)},
           {"joules_per_token", joules_per_token(report.decode_energy, report.decode_tokens)},
           {"counters", json::object()},
           {"missing", meter.missing()}};
  const std::vector<std::string> names = meter.counters();
  for (std::size_t i = 0; i < report.decode_energy.size(); ++i)
    out["counters"][names[i]] = report.decode_energy[i];
  return out;
}

void print_energy_note(const EnergyMeter& meter) {
  if (!meter.counters().empty()) return;
  aside() << "note: no energy is counted";
  for (const std::string& why : meter.missing()) aside() << "; " << why;
  aside() << "\n";
}

}  // namespace canopy::cli
