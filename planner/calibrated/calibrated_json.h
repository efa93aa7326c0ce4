#pragma once
#include <nlohmann/json_fwd.hpp>

#include "planner/calibrated/valued_trees.h"

namespace canopy {

/// Writes knowledge of both kinds of texts as JSON (docs/formats.md, "Acceptance files"); the same
/// numbers come back.
nlohmann::ordered_json calibrated_to_json(const Calibrated& calibrated);
/// Throws Error naming what is wrong: a list of another length, a number that is not finite or out
/// of its range, information that no contexts can have shown.
Calibrated calibrated_from_json(const nlohmann::json& json);

}  // namespace canopy
