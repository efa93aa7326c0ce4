#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "src/checkpoint/readers.h"

namespace canopy {

/// Says if a config.json is that of a model of text inside one that also sees or hears.
bool is_wrapped(const nlohmann::json& config);

/// The config of the model of text, with what stands outside it and is meant for it, too. Any other
/// config comes back as it is. Throws Error if it is one that Canopy does not take apart.
nlohmann::json text_config(nlohmann::json config);

/// Returns the name that a tensor or a module of the text model has without the wrapper; others
/// come back as they are.
std::string unwrapped_name(const std::string& name);

/// Gives the tensors of a wrapped model of text the names that they have without the wrapper, and
/// leaves out those of the other parts, with a note in the config. The head is tied where none is
/// stored and the wrapper's config does not say otherwise.
void unwrap_tensors(const nlohmann::json& wrapper, TensorIndex& index, ModelConfig& config);

}  // namespace canopy
