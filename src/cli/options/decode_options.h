#pragma once
#include <optional>
#include <stop_token>
#include <string>

#include "planner/hardware_profile.h"
#include "src/cli/options/model/model_options.h"
#include "src/cli/options/sampling_options.h"
#include "src/cli/options/speculation_options.h"
#include "src/cli/output/progress_line.h"

namespace canopy::cli {

/// Figures that a plan is made from.
struct Assumptions {
  HardwareProfile profile;
  std::string acceptance_from;                                         // in words
  std::string routes_from = "the routes of another model, Qwen3-30B";  // of a mixture, in words
};

/// The flags of commands that decode.
struct DecodeOptions {
  SamplingOptions sampling;
  SpeculationOptions speculation;
  ModelOptions model;
  std::optional<std::string> repack;  // directory of the model by rows

  /// Adds them to a command's own, as three groups.
  void add_flags(Flags& all);
  /// Makes the options of the model, and of what to speculate with. Throws UsageError.
  EngineOptions engine_options(const std::optional<Gpus>& gpus = std::nullopt) const;
  /// -m, and -md where `plan` is to use it: a model, or a corpus, which goes into the plan. Models
  /// of the Hub are downloaded where they are missing, and --repack writes that of -m by rows.
  /// Throws Stopped on request.
  ModelFiles open(PlanRequest& plan, const std::stop_token& stop) const;
  /// --profile's profile, else what the cache keeps of these models on this machine, else measured
  /// now, which stderr reports; and what the cache keeps of texts, into options.plan.
  Assumptions find_assumptions(const ModelFiles& models, EngineOptions& options,
                               ProgressLine& progress, const std::stop_token& stop) const;
  /// Keeps what texts have shown for the plans to come, unless --no-learn; `plan` as it was asked
  /// for. A note on stderr says where it cannot be kept.
  void learn(const Engine& engine, const PlanRequest& plan, const LearnedAcceptance& learned) const;

 private:
  AcceptanceKey acceptance_key(const ModelFiles& models, const PlanRequest& plan) const;
};

}  // namespace canopy::cli
