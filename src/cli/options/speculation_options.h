#pragma once
#include <stop_token>
#include <string>

#include "src/cli/command.h"
#include "src/cli/output/progress_line.h"
#include "src/measure/hardware.h"

namespace canopy::cli {

/// The flags of commands that decode, beside the sampling's: -md, --spec, --tree, --tree-size,
/// --tree-depth, --profile.
boost::program_options::options_description speculation_flags();

/// Throws UsageError naming the flag.
SpeculationMethod parse_method(std::string_view flag, const std::string& text);

/// Those flags, checked against each other. Throws UsageError.
void set_speculation(const boost::program_options::variables_map& values, EngineOptions& options);
/// -m, and -md where it is to be used.
ModelFiles open_speculating_models(const boost::program_options::variables_map& values,
                                   const EngineOptions& options);

/// What a plan is made from.
struct Assumptions {
  HardwareProfile profile;
  std::string acceptance_from;  // in words
};
/// --profile's profile, else what the cache keeps of these models on this machine, else measured
/// now, which stderr is told; and the acceptance that the cache keeps, into options.plan.
Assumptions find_assumptions(const boost::program_options::variables_map& values,
                             const ModelFiles& models, EngineOptions& options,
                             ProgressLine& progress, const std::stop_token& stop);

}  // namespace canopy::cli
