#include "src/server/model_names.h"

#include <string_view>

#include "src/server/replies/api_error.h"

namespace canopy::server {

namespace {

/// True if a pattern, in which one * may stand for any text, is all of a name.
bool matches(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == pattern.npos) return pattern == name;
  return name.size() + 1 >= pattern.size() && name.starts_with(pattern.substr(0, star)) &&
         name.ends_with(pattern.substr(star + 1));
}

}  // namespace

void check_model(const ServiceOptions& options, const std::string& asked) {
  const std::string& own = options.model_name;
  if (asked == own || asked == own + ".gguf") return;
  std::string names = "'" + own + "'";
  for (const std::string& alias : options.aliases) {
    if (matches(alias, asked)) return;
    names += ", '" + alias + "'";
  }
  throw ApiError(404, "there is no model '" + asked + "' here, only " + names, "model");
}

}  // namespace canopy::server
