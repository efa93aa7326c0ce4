#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "src/checkpoint/readers.h"
#include "tests/error_of.h"

namespace canopy {

/// The error of a config.json with `changes` merged in (null erases nothing: it is a value).
inline std::string config_error_with(nlohmann::json config, const nlohmann::json& changes) {
  config.update(changes);
  return error_of([&] { hf_config(config); });
}

/// The error of a config.json without `key`.
inline std::string config_error_without(nlohmann::json config, const char* key) {
  config.erase(key);
  return error_of([&] { hf_config(config); });
}

}  // namespace canopy
