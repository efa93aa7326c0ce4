#pragma once
#include <span>
#include <string>
#include <string_view>

#include "src/jinja/runtime.h"

namespace canopy::jinja {

/// subject|name(arguments)
struct Filter {
  std::string_view name;
  Value (*apply)(Runtime&, const Value& subject, const Arguments&);
};
/// subject is name(arguments)
struct Test {
  std::string_view name;
  bool (*holds)(Runtime&, const Value& subject, const Arguments&);
};

/// Throw TemplateError if there is none of the name.
Value apply_filter(Runtime& runtime, std::string_view name, const Value& subject,
                   const Arguments& arguments);
bool apply_test(Runtime& runtime, std::string_view name, const Value& subject,
                const Arguments& arguments);
bool has_filter(std::string_view name);
bool has_test(std::string_view name);

// The tables, by what the filters work on.
std::span<const Filter> text_filters();
std::span<const Filter> sequence_filters();
std::span<const Filter> number_filters();

/// format % values, and values of str.format().
Value percent_format(Runtime& runtime, const Value& format, const Value& values);
Value brace_format(Runtime& runtime, const Value& format, const Arguments& arguments);

}  // namespace canopy::jinja
