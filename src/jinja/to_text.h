#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "src/jinja/runtime.h"

namespace canopy::jinja {

/// Appends str(value), as {{ value }} prints it.
void append_text(Runtime& runtime, Output& out, const Value& value);
/// str(value). A string comes back as it is.
Value to_string(Runtime& runtime, const Value& value);
/// The string, marked as safe.
Value marked_safe(Runtime& runtime, const Value& text);
/// str(value) with &<>'" as HTML has them, marked as safe; what is safe already comes back.
Value escaped(Runtime& runtime, const Value& value);
std::string float_text(double value);  // repr(value)
/// repr(text)
void append_quoted(Runtime& runtime, Output& out, std::string_view text);
/// repr(value), as in lists
void append_repr(Runtime& runtime, Output& out, const Value& value);

/// Arguments of json.dumps, as transformers' `tojson` has them.
struct JsonStyle {
  bool ensure_ascii = false;
  bool indented = false;
  std::string indent;  // of one level
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
};
void append_json(Runtime& runtime, Output& out, const Value& value, const JsonStyle& style,
                 int level = 0);

}  // namespace canopy::jinja
