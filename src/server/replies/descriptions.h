#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "src/server/served_model.h"

namespace canopy::server {

// Descriptions that a server gives of itself. Any thread.

/// /tokenizer_info, as vLLM has it: the tokens that texts begin and end with, null where they have
/// none, and the chat template.
nlohmann::json tokenizer_json(const ServedModel& model);
/// /v1/models, also while the model is loading: null.
nlohmann::json models_json(const ServiceOptions& options, const ServedModel* model);
/// Lists the settings by which tokens are drawn, under llama-server's names.
nlohmann::json params_json(const Sampling& sampling, const LogitEditing& edits);
/// /props and /slots, as llama-server has them; the plan under "canopy".
nlohmann::json props_json(const ServiceOptions& options, const ServedModel& model);
nlohmann::json slots_json(const ServiceOptions& options, const ServedModel& model);
/// The sweep that is on its way and the last one, with the trees that it checked.
nlohmann::json state_json(const ServedModel& model);
/// /metrics, in Prometheus' text format.
std::string metrics_text(const ServedModel& model);

}  // namespace canopy::server
