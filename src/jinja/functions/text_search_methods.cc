// Methods of str that search and cut.
#include <algorithm>
#include <array>
#include <optional>

#include "src/base/utf8.h"
#include "src/jinja/characters.h"
#include "src/jinja/functions/arguments.h"
#include "src/jinja/functions/text_methods.h"
#include "src/jinja/operators.h"

namespace canopy::jinja {

namespace {

/// text[start:end] of the parameters from `index` on, in characters; not given: all of it.
Value part_of(Runtime& runtime, const Value& self, const Parameters& given, std::size_t index) {
  if (!given.has(index) && !given.has(index + 1)) return self;
  const auto end = [&](std::size_t i) { return given.has(i) ? *given.get(i) : Value(None{}); };
  return slice(runtime, self, end(index), end(index + 1), Value(None{}));
}

/// Returns true if the text has one of the parts, a string or a tuple of them, at the end that
/// `at_end` looks at.
Value has_end(Runtime& runtime, const Value& self, const Arguments& arguments,
              std::string_view name, bool (*at_end)(std::string_view, std::string_view)) {
  const Parameters given(runtime, name, arguments, {"prefix", "start", "end"});
  const Value text = part_of(runtime, self, given, 1);
  const Value& parts = given.require(0);
  if (parts.is(Kind::kList) && parts.list().kind == ListKind::kTuple) {
    for (const Value& part : parts.list().items)
      if (part.is(Kind::kString) && at_end(text.string(), part.string())) return Value(true);
    return Value(false);
  }
  if (!parts.is(Kind::kString))
    runtime.fail(std::string(name) + " first arg must be str or a tuple of str, not " +
                 std::string(type_name(parts)));
  return Value(at_end(text.string(), parts.string()));
}

Value startswith(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return has_end(
      runtime, self, arguments, "startswith",
      [](std::string_view text, std::string_view part) { return text.starts_with(part); });
}
Value endswith(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return has_end(runtime, self, arguments, "endswith",
                 [](std::string_view text, std::string_view part) { return text.ends_with(part); });
}

/// The last place of `part`, or npos. In linear time.
std::size_t find_last(std::string_view text, std::string_view part) {
  const std::string turned_text(text.rbegin(), text.rend()), turned(part.rbegin(), part.rend());
  const std::size_t at = find_text(turned_text, turned);
  return at == std::string_view::npos ? at : text.size() - at - part.size();
}

/// Finds where the part is, in characters; -1 if it is not.
std::int64_t place(Runtime& runtime, const Value& self, const Arguments& arguments, bool last) {
  const Parameters given(runtime, "find", arguments, {"sub", "start", "end"});
  const std::string_view part = given.require_string(0);
  const Value within = part_of(runtime, self, given, 1);
  runtime.walk(self.string().size());
  const std::size_t at = last ? find_last(within.string(), part) : find_text(within.string(), part);
  if (at == std::string_view::npos) return -1;
  std::int64_t begin = given.has(1) ? given.integer(1, 0) : 0;
  const auto count = static_cast<std::int64_t>(self.text().characters);
  if (begin < 0) begin = std::max<std::int64_t>(0, begin + count);
  return begin + static_cast<std::int64_t>(count_characters(within.string().substr(0, at)));
}

template <bool last>
Value find(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return Value(place(runtime, self, arguments, last));
}

template <bool last>
Value index(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const std::int64_t at = place(runtime, self, arguments, last);
  if (at < 0) runtime.fail("substring not found");
  return Value(at);
}

Value count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters given(runtime, "count", arguments, {"sub", "start", "end"});
  const std::string_view part = given.require_string(0);
  const Value within = part_of(runtime, self, given, 1);
  runtime.read(within.string().size());
  if (part.empty()) return Value(static_cast<std::int64_t>(within.text().characters) + 1);
  std::int64_t found = 0;
  std::size_t at = find_text(within.string(), part);
  for (; at != std::string_view::npos; ++found) {
    runtime.step();
    at = find_text(within.string(), part, at + part.size());
  }
  return Value(found);
}

/// Cuts at spaces, at most `most` times.
std::vector<Value> split_at_spaces(Runtime& runtime, std::string_view rest, std::int64_t most,
                                   bool from_right) {
  std::vector<Value> out;
  while (!(rest = from_right ? strip_right(rest) : strip_left(rest)).empty()) {
    std::size_t cut = from_right ? rest.size() : 0;
    const auto space_at = [&](std::size_t i) {
      if (from_right && (static_cast<unsigned char>(rest[i]) & 0xC0) == 0x80) return false;
      return is_space(utf8_step(rest.substr(i)).value);
    };
    if (most-- == 0) {
      out.push_back(runtime.string(std::string(rest)));
      return out;
    }
    if (from_right) {
      while (cut > 0 && !space_at(cut - 1)) --cut;
      // The space may have more bytes after its first.
      std::size_t begin = cut;
      while (begin < rest.size() && (static_cast<unsigned char>(rest[begin]) & 0xC0) == 0x80)
        ++begin;
      out.push_back(runtime.string(std::string(rest.substr(begin))));
      rest = rest.substr(0, cut > 0 ? cut - 1 : 0);
    } else {
      while (cut < rest.size() && !space_at(cut)) cut += utf8_length(rest[cut]);
      out.push_back(runtime.string(std::string(rest.substr(0, cut))));
      rest.remove_prefix(cut);
    }
  }
  return out;
}

template <bool from_right>
Value split(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters given(runtime, "split", arguments, {"sep", "maxsplit"});
  std::int64_t most = given.integer(1, -1);
  std::string_view rest = self.string();
  runtime.read(rest.size());
  std::vector<Value> out;
  if (!given.has(0)) {
    out = split_at_spaces(runtime, rest, most, from_right);
  } else {
    const std::string_view separator = given.require_string(0);
    if (separator.empty()) runtime.fail("empty separator");
    for (; most != 0; --most) {
      runtime.step();
      // Looked for in the whole rest each time: from the right that would be quadratic.
      if (from_right) runtime.walk(rest.size());
      const std::size_t at = from_right ? find_last(rest, separator) : find_text(rest, separator);
      if (at == std::string_view::npos) break;
      const std::size_t behind = at + separator.size();
      out.push_back(
          runtime.string(std::string(from_right ? rest.substr(behind) : rest.substr(0, at))));
      rest = from_right ? rest.substr(0, at) : rest.substr(behind);
    }
    out.push_back(runtime.string(std::string(rest)));
  }
  if (from_right) std::reverse(out.begin(), out.end());
  return runtime.list(std::move(out));
}

Value splitlines(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters given(runtime, "splitlines", arguments, {"keepends"});
  const bool keep = given.flag(0, false);
  std::string_view rest = self.string();
  runtime.walk(rest.size());
  std::vector<Value> out;
  while (!rest.empty()) {
    std::size_t line = 0;
    while (line < rest.size() && !is_line_break(utf8_step(rest.substr(line)).value))
      line += utf8_length(rest[line]);
    std::size_t end = line;
    if (end < rest.size()) end += rest.substr(end).starts_with("\r\n") ? 2 : utf8_length(rest[end]);
    out.push_back(runtime.string(std::string(rest.substr(0, keep ? end : line))));
    rest.remove_prefix(end);
  }
  return runtime.list(std::move(out));
}

template <bool last>
Value partition(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const std::string_view separator =
      Parameters(runtime, "partition", arguments, {"sep"}).require_string(0);
  if (separator.empty()) runtime.fail("empty separator");
  const std::string_view text = self.string();
  runtime.walk(text.size());
  const std::size_t at = last ? find_last(text, separator) : find_text(text, separator);
  const auto part = [&](std::string_view bytes) { return runtime.string(std::string(bytes)); };
  if (at == std::string_view::npos)
    return last ? runtime.list({part(""), part(""), self}, ListKind::kTuple)
                : runtime.list({self, part(""), part("")}, ListKind::kTuple);
  return runtime.list(
      {part(text.substr(0, at)), part(separator), part(text.substr(at + separator.size()))},
      ListKind::kTuple);
}

}  // namespace

std::span<const Method> text_search_methods() {
  static constexpr std::array kMethods{Method{"startswith", startswith},
                                       Method{"endswith", endswith},
                                       Method{"find", find<false>},
                                       Method{"rfind", find<true>},
                                       Method{"index", index<false>},
                                       Method{"rindex", index<true>},
                                       Method{"count", count},
                                       Method{"split", split<false>},
                                       Method{"rsplit", split<true>},
                                       Method{"splitlines", splitlines},
                                       Method{"partition", partition<false>},
                                       Method{"rpartition", partition<true>}};
  return kMethods;
}

}  // namespace canopy::jinja
