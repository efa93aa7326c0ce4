#include "src/server/replies/api_error.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace canopy::server {

namespace {

/// Finds the end of a place like " (server/tools.cc:12)" that begins here; npos if it is something
/// else.
std::size_t end_of_place(const std::string& text, std::size_t begin) {
  static constexpr std::array<const char*, 4> kFiles{".cc:", ".h:", ".cu:", ".cuh:"};
  const std::size_t end = text.find_first_of(" )\n", begin + 2);
  if (end == std::string::npos || text[end] != ')') return std::string::npos;
  const std::string inside = text.substr(begin + 2, end - begin - 2);
  const std::size_t digits = inside.find_last_not_of("0123456789") + 1;
  const bool is_place =
      digits < inside.size() && std::any_of(kFiles.begin(), kFiles.end(), [&](const char* file) {
        return inside.substr(0, digits).ends_with(file);
      });
  return is_place ? end + 1 : std::string::npos;
}

}  // namespace

nlohmann::json ApiError::anthropic_body() const {
  std::string text = message, kind = type;
  if (status == 413) kind = "request_too_large";
  if (status == 503) kind = "overloaded_error";
  if (status == 500) kind = "api_error";
  if (more.is_object() && more.contains("n_prompt_tokens"))
    // Clients know by these words that a conversation must be made shorter.
    text = "prompt is too long: " + more["n_prompt_tokens"].dump() + " tokens > " +
           std::to_string(more["n_ctx"].get<int>() - 1) + " maximum";
  return {{"type", "error"}, {"error", {{"type", kind}, {"message", text}}}};
}

std::string reported(std::string text) {
  for (std::size_t at = 0; (at = text.find(" (", at)) != std::string::npos;) {
    const std::size_t end = end_of_place(text, at);
    if (end == std::string::npos)
      ++at;
    else
      text.erase(at, end - at);
  }
  for (std::size_t at = 0; (at = text.find("\n  ", at)) != std::string::npos;)
    text.replace(at, 3, ", ");
  return text;
}

}  // namespace canopy::server
