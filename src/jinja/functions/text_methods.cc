// Methods of str that make one text of another.
#include "src/jinja/functions/text_methods.h"

#include <algorithm>
#include <array>

#include "src/base/utf8.h"
#include "src/jinja/characters.h"
#include "src/jinja/functions/arguments.h"
#include "src/jinja/functions/filters.h"
#include "src/jinja/operators.h"
#include "src/jinja/to_text.h"

namespace canopy::jinja {

namespace {

enum class Side { kLeft, kRight, kBoth };

template <Side side>
Value strip(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters given(runtime, "strip", arguments, {"chars"});
  std::string_view text = self.string();
  const bool spaces = !given.has(0);
  if (!spaces && !given.get(0)->is(Kind::kString)) runtime.fail("strip arg must be None or str");
  const std::string_view set = spaces ? "" : given.require_string(0);
  // Each character of the text is looked for among those of the set.
  runtime.step((text.size() / 8 + 1) * (set.size() / 64 + 1));
  if (side != Side::kRight) text = spaces ? strip_left(text) : strip_left(text, set);
  if (side != Side::kLeft) text = spaces ? strip_right(text) : strip_right(text, set);
  return text.size() == self.string().size() ? self : runtime.string(std::string(text));
}

Value upper(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Parameters(runtime, "upper", arguments, {});
  runtime.walk(self.string().size());
  return runtime.string(to_upper(self.string()));
}

Value lower(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Parameters(runtime, "lower", arguments, {});
  runtime.walk(self.string().size());
  return runtime.string(to_lower(self.string()));
}

Value capitalize(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Parameters(runtime, "capitalize", arguments, {});
  const std::string_view text = self.string();
  if (text.empty()) return self;
  runtime.walk(text.size());
  const std::size_t first = utf8_length(text[0]);
  return runtime.string(to_upper(text.substr(0, first)) + to_lower(text.substr(first)));
}

Value title(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Parameters(runtime, "title", arguments, {});
  runtime.walk(self.string().size());
  std::string out;
  bool in_word = false;
  for (std::string_view rest = self.string(); !rest.empty();) {
    const std::string_view c = rest.substr(0, utf8_length(rest[0]));
    out += in_word ? to_lower(c) : to_upper(c);
    in_word = is_letter(utf8_step(c).value);
    rest.remove_prefix(c.size());
  }
  return runtime.string(std::move(out));
}

Value replace(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters given(runtime, "replace", arguments, {"old", "new", "count"});
  const std::string_view from = given.require_string(0), to = given.require_string(1);
  std::int64_t left = given.integer(2, -1);
  std::string_view rest = self.string();
  runtime.read(rest.size());
  Output out(runtime);
  // Between all characters, if there is nothing to look for.
  for (; left != 0; --left) {
    runtime.step();
    const std::size_t at = find_text(rest, from);
    if (at == std::string_view::npos) break;
    out.append(rest.substr(0, at));
    out.append(to);
    rest.remove_prefix(at + from.size());
    if (!from.empty()) continue;
    if (rest.empty()) break;
    const std::size_t next = utf8_length(rest[0]);
    out.append(rest.substr(0, next));
    rest.remove_prefix(next);
  }
  out.append(rest);
  return runtime.string(std::move(out).take());
}

Value removeprefix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const std::string_view part =
      Parameters(runtime, "removeprefix", arguments, {"prefix"}).require_string(0);
  if (!self.string().starts_with(part)) return self;
  return runtime.string(std::string(self.string().substr(part.size())));
}

Value removesuffix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const std::string_view part =
      Parameters(runtime, "removesuffix", arguments, {"suffix"}).require_string(0);
  if (!self.string().ends_with(part)) return self;
  return runtime.string(std::string(self.string().substr(0, self.string().size() - part.size())));
}

Value join(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters given(runtime, "join", arguments, {"iterable"});
  Output out(runtime);
  std::size_t at = 0;
  for (const Value& item : iterate(runtime, given.require(0))) {
    if (!item.is(Kind::kString))
      runtime.fail("sequence item " + std::to_string(at) + ": expected str instance, " +
                   std::string(type_name(item)) + " found");
    if (at++ > 0) out.append(self.string());
    out.append(item.string());
  }
  return runtime.string(std::move(out).take());
}

/// Returns true if the text has characters, and all of them are so.
template <bool (*holds)(char32_t)>
Value all_are(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Parameters(runtime, "the method", arguments, {});
  runtime.walk(self.string().size());
  std::string_view rest = self.string();
  if (rest.empty()) return Value(false);
  while (!rest.empty()) {
    const Utf8Step step = utf8_step(rest);
    if (!holds(step.value)) return Value(false);
    rest.remove_prefix(step.bytes);
  }
  return Value(true);
}

bool is_letter_or_digit(char32_t c) { return is_letter(c) || is_digit(c); }

template <std::string (*change)(std::string_view)>
Value is_case(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Parameters(runtime, "the method", arguments, {});
  runtime.walk(self.string().size());
  return Value(change(self.string()) == self.string() &&
               to_upper(self.string()) != to_lower(self.string()));
}

/// Spaces, or what is asked for, up to a width.
template <Side side>
Value justify(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters given(runtime, "justify", arguments, {"width", "fillchar"});
  given.require(0);
  const std::int64_t width = given.integer(0, 0);
  const std::string_view with = given.string(1, " ");
  if (count_characters(with) != 1) runtime.fail("the fill character must be one character");
  const auto length = static_cast<std::int64_t>(self.text().characters);
  if (width <= length) return self;
  const auto missing = static_cast<std::size_t>(width - length);
  runtime.check_size(missing, with.size());
  // Python puts the odd one to the left of a centred text if the width is odd.
  const std::size_t odd = missing % 2 & static_cast<std::size_t>(width % 2);
  const std::size_t left = side == Side::kLeft    ? 0
                           : side == Side::kRight ? missing
                                                  : missing / 2 + odd;
  std::string out;
  for (std::size_t i = 0; i < left; ++i) out += with;
  out += self.string();
  for (std::size_t i = left; i < missing; ++i) out += with;
  return runtime.string(std::move(out));
}

}  // namespace

std::span<const Method> text_methods() {
  static constexpr std::array kMethods{
      Method{"strip", strip<Side::kBoth>},
      Method{"lstrip", strip<Side::kLeft>},
      Method{"rstrip", strip<Side::kRight>},
      Method{"upper", upper},
      Method{"lower", lower},
      Method{"capitalize", capitalize},
      Method{"title", title},
      Method{"replace", replace},
      Method{"removeprefix", removeprefix},
      Method{"removesuffix", removesuffix},
      Method{"join", join},
      Method{"format", brace_format},
      Method{"isspace", all_are<is_space>},
      Method{"isdigit", all_are<is_digit>},
      Method{"isdecimal", all_are<is_digit>},
      Method{"isnumeric", all_are<is_digit>},
      Method{"isalpha", all_are<is_letter>},
      Method{"isalnum", all_are<is_letter_or_digit>},
      Method{"isupper", is_case<to_upper>},
      Method{"islower", is_case<to_lower>},
      Method{"ljust", justify<Side::kLeft>},
      Method{"rjust", justify<Side::kRight>},
      Method{"center", justify<Side::kBoth>},
  };
  return kMethods;
}

}  // namespace canopy::jinja
