// Filters that make text.
#include <algorithm>
#include <array>

#include "src/base/utf8.h"
#include "src/jinja/characters.h"
#include "src/jinja/error.h"
#include "src/jinja/functions/arguments.h"
#include "src/jinja/functions/filters.h"
#include "src/jinja/operators.h"
#include "src/jinja/to_text.h"

namespace canopy::jinja {

namespace {

/// Calls a method of str on str(subject), as most of these filters do.
Value through_method(Runtime& runtime, const Value& subject, std::string_view method,
                     const Arguments& arguments) {
  const Value text = to_string(runtime, subject);
  return call_method(runtime, *find_method(text, method), text, arguments);
}

Value upper(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  return through_method(runtime, subject, "upper", arguments);
}

Value lower(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  return through_method(runtime, subject, "lower", arguments);
}

Value capitalize(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  return through_method(runtime, subject, "capitalize", arguments);
}

/// Capitalises words. They begin after spaces and -({[< here, not after every other character as in
/// str.title().
Value title(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  Parameters(runtime, "title", arguments, {});
  const Value text = to_string(runtime, subject);
  runtime.walk(text.string().size());
  std::string out;
  bool begins = true;
  for (std::string_view rest = text.string(); !rest.empty();) {
    const std::string_view c = rest.substr(0, utf8_length(rest[0]));
    out += begins ? to_upper(c) : to_lower(c);
    begins = is_space(utf8_step(c).value) || std::string_view("-({[<").find(c) != c.npos;
    rest.remove_prefix(c.size());
  }
  return runtime.string(std::move(out));
}

Value trim(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  return through_method(runtime, subject, "strip", arguments);
}

Value replace(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters given(runtime, "replace", arguments, {"old", "new", "count"});
  Arguments texts;
  texts.positional = {to_string(runtime, given.require(0)), to_string(runtime, given.require(1))};
  if (given.has(2)) texts.positional.push_back(*given.get(2));
  return find_method(texts.positional[0], "replace")
      ->call(runtime, to_string(runtime, subject), texts);  // never safe
}

Value string(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  Parameters(runtime, "string", arguments, {});
  return to_string(runtime, subject);
}

Value escape(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  Parameters(runtime, "escape", arguments, {});
  return escaped(runtime, subject);
}

Value safe(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  Parameters(runtime, "safe", arguments, {});
  return marked_safe(runtime, to_string(runtime, subject));
}

Value indent(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters given(runtime, "indent", arguments, {"width", "first", "blank"});
  std::string by;
  if (given.get(0) && given.get(0)->is(Kind::kString)) {
    by = given.get(0)->string();
  } else {
    const std::int64_t width = std::max<std::int64_t>(0, given.integer(0, 4));
    runtime.check_size(static_cast<std::size_t>(width), 1);
    by.assign(static_cast<std::size_t>(width), ' ');
  }
  if (!subject.is(Kind::kString)) {
    require_defined(runtime, subject);
    runtime.fail("indent is of str, not of " + std::string(type_name(subject)));
  }
  const bool blank = given.flag(2, false);
  const Arguments none;
  const Value with_end = runtime.string(joined({subject.string(), "\n"}));
  const Value lines = find_method(with_end, "splitlines")->call(runtime, with_end, none);
  Output out(runtime);
  if (given.flag(1, false)) out.append(by);
  bool first = true;
  for (const Value& line : lines.list().items) {
    if (!first) {
      out.append('\n');
      if (blank || !line.string().empty()) out.append(by);
    }
    first = false;
    out.append(line.string());
  }
  return runtime.string(std::move(out).take());
}

Value tojson(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters given(runtime, "tojson", arguments,
                         {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = given.flag(0, false);
  if (given.has(1)) {
    style.indented = true;
    style.item_separator = ',';
    if (given.get(1)->is(Kind::kString)) {
      style.indent = given.get(1)->string();
    } else {
      const std::int64_t width = std::max<std::int64_t>(0, given.integer(1, 0));
      runtime.check_size(static_cast<std::size_t>(width), 1);
      style.indent.assign(static_cast<std::size_t>(width), ' ');
    }
  }
  if (given.has(2)) {
    const auto parts = iterate(runtime, *given.get(2));
    if (parts.all().size() != 2 || !parts.all()[0].is(Kind::kString) ||
        !parts.all()[1].is(Kind::kString))
      runtime.fail("tojson(): 'separators' must be two strings");
    style.item_separator = parts.all()[0].string();
    style.key_separator = parts.all()[1].string();
  }
  style.sort_keys = given.flag(3, false);
  Output out(runtime);
  append_json(runtime, out, subject, style);
  return runtime.string(std::move(out).take());
}

Value format(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  if (!arguments.named.empty()) runtime.fail("format with named values is not supported");
  return percent_format(runtime, to_string(runtime, subject),
                        runtime.list(arguments.positional, ListKind::kTuple));
}

Value wordcount(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  Parameters(runtime, "wordcount", arguments, {});
  return Value(length(runtime, through_method(runtime, subject, "split", {})));
}

}  // namespace

std::span<const Filter> text_filters() {
  static constexpr std::array kFilters{
      Filter{"upper", upper},   Filter{"lower", lower},        Filter{"capitalize", capitalize},
      Filter{"title", title},   Filter{"trim", trim},          Filter{"replace", replace},
      Filter{"string", string}, Filter{"safe", safe},          Filter{"escape", escape},
      Filter{"e", escape},      Filter{"indent", indent},      Filter{"tojson", tojson},
      Filter{"format", format}, Filter{"wordcount", wordcount}};
  return kFilters;
}

}  // namespace canopy::jinja
