#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "src/base/error.h"

namespace canopy::jinja {

/// An error in a template, with its place. what() has the place, and any context after the message.
class __attribute__((visibility("default"))) TemplateError : public Error {
 public:
  TemplateError(std::string message, int line, int column, const char* file = __builtin_FILE(),
                int source_line = __builtin_LINE());
  /// Alone; of raise_exception('...') the template's own words.
  const std::string& message() const { return message_; }
  int line() const { return line_; }      // from 1
  int column() const { return column_; }  // from 1, in characters

 private:
  std::string message_;
  int line_, column_;
};

/// One text of all.
std::string joined(std::initializer_list<std::string_view> parts);

/// Throws TemplateError with the line and column of byte `offset` in `source`.
[[noreturn]] void fail_at(std::string_view source, std::size_t offset, std::string message);

}  // namespace canopy::jinja
