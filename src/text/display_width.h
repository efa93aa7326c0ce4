#pragma once

namespace canopy::text {

/// Columns of a terminal that a character takes: 0 (it combines with the one before, or does not
/// print), 1 or 2. Source: Unicode's East_Asian_Width, as utf8proc has it.
int display_width(char32_t character);

}  // namespace canopy::text
