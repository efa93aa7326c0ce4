#pragma once
#include <string>
#include <string_view>

namespace canopy::server {

/// The page at /: one file of HTML with its style and script inside. It asks this server alone.
std::string_view page();

/// Its Content-Security-Policy: nothing is loaded, and no other script or style runs.
std::string page_policy();

}  // namespace canopy::server
