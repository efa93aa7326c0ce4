#pragma once
#include <nlohmann/json.hpp>

#include "src/grammar/grammar.h"

namespace canopy::grammar {

/// Choice among the values that a schema accepts.
enum class Values : bool { kAll, kObjects };

/// JSON texts that the schema accepts, without white space around them; docs/grammar.md says which
/// of them, and which keywords there are. `true` and {} stand for any value.
/// Throws Error naming the place in the schema ("#/properties/a") and the keyword: not supported,
/// malformed, larger than limits.h allows, or satisfied by no text.
Grammar json_grammar(const nlohmann::ordered_json& schema, Values values = Values::kAll);

/// True if the schema demands nothing of an object but that it is one.
bool accepts_any_object(const nlohmann::ordered_json& schema);

}  // namespace canopy::grammar
