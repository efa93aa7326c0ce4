#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace canopy::text {

/// Decodes RFC 4648's base64, padded with '='. Returns nothing if `text` is anything else, down to
/// bits of the last character that no byte holds.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace canopy::text
