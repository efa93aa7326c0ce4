#include "src/cli/options/advice.h"

#include <iostream>
#include <sstream>

#include "src/chat/generation_config.h"

namespace canopy::cli {

namespace {

std::string shown(const Sampling& sampling, const LogitEditing& edits) {
  std::ostringstream text;
  text << "temperature " << sampling.temperature;
  if (sampling.temperature > 0) {
    if (sampling.top_k > 0) text << ", top-k " << sampling.top_k;
    if (sampling.top_p < 1) text << ", top-p " << sampling.top_p;
    if (sampling.min_p > 0) text << ", min-p " << sampling.min_p;
    if (sampling.typical_p < 1) text << ", typical " << sampling.typical_p;
  }
  if (edits.repetition != 1) text << ", repeat penalty " << edits.repetition;
  if (edits.presence != 0) text << ", presence penalty " << edits.presence;
  if (edits.frequency != 0) text << ", frequency penalty " << edits.frequency;
  return text.str();
}

}  // namespace

void take_advice(const std::filesystem::path& model, SamplingOptions& options, PlanRequest& plan) {
  const chat::GenerationConfig advice = chat::read_generation_config(model);
  Sampling& sampling = options.advised;
  sampling.temperature = advice.temperature.value_or(sampling.temperature);
  sampling.top_k = advice.top_k.value_or(sampling.top_k);
  sampling.top_p = advice.top_p.value_or(sampling.top_p);
  sampling.min_p = advice.min_p.value_or(sampling.min_p);
  sampling.typical_p = advice.typical_p.value_or(sampling.typical_p);
  options.advised_edits.repetition =
      advice.repetition_penalty.value_or(options.advised_edits.repetition);
  plan.temperature = static_cast<double>(options.sampling().temperature);
  const bool advises = !(sampling == Sampling()) || options.advised_edits.repetition != 1;
  std::cerr << "sampling: " << shown(options.sampling(), options.edits())
            << (advises ? ", as " + advice.origin + " advises where no flag says otherwise" : "")
            << "\n";
}

}  // namespace canopy::cli
