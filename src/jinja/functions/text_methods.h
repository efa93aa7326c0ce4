#pragma once
#include <span>

#include "src/jinja/value.h"

namespace canopy::jinja {

/// The methods of str.
std::span<const Method> text_methods();
/// Returns those of them that search and cut.
std::span<const Method> text_search_methods();

}  // namespace canopy::jinja
