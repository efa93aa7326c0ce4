#include "src/jinja/error.h"

#include <algorithm>
#include <utility>

#include "src/jinja/characters.h"

namespace canopy::jinja {

TemplateError::TemplateError(std::string message, int line, int column, const char* file,
                             int source_line)
    : Error(message + ", at line " + std::to_string(line) + ", column " + std::to_string(column) +
                " of the template",
            file, source_line),
      message_(std::move(message)),
      line_(line),
      column_(column) {}

std::string joined(std::initializer_list<std::string_view> parts) {
  std::string out;
  for (const std::string_view part : parts) out += part;
  return out;
}

void fail_at(std::string_view source, std::size_t offset, std::string message) {
  const std::string_view before = source.substr(0, offset);
  const std::size_t newline = before.rfind('\n');
  const std::size_t start = newline == std::string_view::npos ? 0 : newline + 1;
  throw TemplateError(std::move(message),
                      1 + static_cast<int>(std::count(before.begin(), before.end(), '\n')),
                      1 + static_cast<int>(count_characters(before.substr(start))));
}

}  // namespace canopy::jinja
