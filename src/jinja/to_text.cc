#include "src/jinja/to_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "src/base/utf8.h"
#include "src/jinja/characters.h"
#include "src/jinja/operators.h"

namespace canopy::jinja {

namespace {

constexpr std::string_view kHex = "0123456789abcdef";

std::string hex(char32_t value, int digits) {
  std::string out;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kHex[value >> shift & 15];
  return out;
}

void append_json_string(Runtime& runtime, Output& out, std::string_view text, bool ensure_ascii) {
  runtime.walk(text.size());
  out.append('"');
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    const char32_t c = step.value;
    static constexpr std::string_view kShort = "\"\\\n\r\t\f\b";
    static constexpr std::string_view kLetters = "\"\\nrtfb";
    const std::size_t at = c < 0x80 ? kShort.find(static_cast<char>(c)) : std::string_view::npos;
    if (at != std::string_view::npos) {
      out.append('\\');
      out.append(kLetters[at]);
    } else if (c >= 0x10000 && ensure_ascii) {  // as two halves in UTF-16
      out.append("\\u" + hex(0xD800 + ((c - 0x10000) >> 10), 4));
      out.append("\\u" + hex(0xDC00 + ((c - 0x10000) & 0x3FF), 4));
    } else if (c < 0x20 || (c >= 0x7F && ensure_ascii)) {
      out.append("\\u" + hex(c, 4));
    } else {
      out.append(text.substr(0, step.bytes));
    }
    text.remove_prefix(step.bytes);
  }
  out.append('"');
}

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return float_text(value);
}

/// A dict's key, which JSON has as a string.
void append_json_key(Runtime& runtime, Output& out, const Value& key, const JsonStyle& style) {
  if (key.is(Kind::kString))
    return append_json_string(runtime, out, key.string(), style.ensure_ascii);
  out.append('"');
  append_json(runtime, out, key, style);
  out.append('"');
}

void append_json_break(Output& out, const JsonStyle& style, int level) {
  if (!style.indented) return;
  out.append('\n');
  for (int i = 0; i < level; ++i) out.append(style.indent);
}

void append_json_list(Runtime& runtime, Output& out, const List& list, const JsonStyle& style,
                      int level) {
  if (list.items.empty()) return out.append("[]");
  out.append('[');
  bool first = true;
  for (const Value& item : list.items) {
    if (!first) out.append(style.item_separator);
    first = false;
    append_json_break(out, style, level + 1);
    append_json(runtime, out, item, style, level + 1);
  }
  append_json_break(out, style, level);
  out.append(']');
}

void append_json_dict(Runtime& runtime, Output& out, const Dict& dict, const JsonStyle& style,
                      int level) {
  if (dict.entries.empty()) return out.append("{}");
  std::vector<const std::pair<Value, Value>*> entries;
  for (const auto& entry : dict.entries) entries.push_back(&entry);
  if (style.sort_keys) {
    runtime.step(entries.size() * 16);
    std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
      return less(runtime, a->first, b->first);
    });
  }
  out.append('{');
  bool first = true;
  for (const auto* entry : entries) {
    if (!first) out.append(style.item_separator);
    first = false;
    append_json_break(out, style, level + 1);
    append_json_key(runtime, out, entry->first, style);
    out.append(style.key_separator);
    append_json(runtime, out, entry->second, style, level + 1);
  }
  append_json_break(out, style, level);
  out.append('}');
}

void append_items(Runtime& runtime, Output& out, const std::vector<Value>& items) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out.append(", ");
    first = false;
    append_repr(runtime, out, item);
  }
}

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto scientific =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string shortest(buffer, scientific.ptr);
  const int exponent = std::stoi(shortest.substr(shortest.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return shortest;
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  const std::string text(buffer, fixed.ptr);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

void append_quoted(Runtime& runtime, Output& out, std::string_view text) {
  runtime.walk(text.size());
  const bool apostrophe = text.find('\'') != std::string_view::npos;
  const char quote = apostrophe && text.find('"') == std::string_view::npos ? '"' : '\'';
  out.append(quote);
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    const char32_t c = step.value;
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      out.append('\\');
      out.append(static_cast<char>(c));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out.append(c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    } else if (is_printable(c)) {
      out.append(text.substr(0, step.bytes));
    } else {
      out.append(c < 0x100     ? "\\x" + hex(c, 2)
                 : c < 0x10000 ? "\\u" + hex(c, 4)
                               : "\\U" + hex(c, 8));
    }
    text.remove_prefix(step.bytes);
  }
  out.append(quote);
}

void append_repr(Runtime& runtime, Output& out, const Value& value) {
  runtime.step();
  switch (value.kind()) {
    case Kind::kUndefined:
      return out.append("Undefined");
    case Kind::kString:
      return append_quoted(runtime, out, value.string());
    case Kind::kList: {
      const List& list = value.list();
      if (list.kind == ListKind::kGenerator)
        runtime.fail("a generator has no text; make a list of it by '|list'");
      const bool tuple = list.kind == ListKind::kTuple;
      out.append(tuple ? '(' : '[');
      append_items(runtime, out, list.items);
      if (tuple && list.items.size() == 1) out.append(',');
      return out.append(tuple ? ')' : ']');
    }
    case Kind::kDict: {
      out.append('{');
      bool first = true;
      for (const auto& [key, item] : value.dict().entries) {
        if (!first) out.append(", ");
        first = false;
        append_repr(runtime, out, key);
        out.append(": ");
        append_repr(runtime, out, item);
      }
      return out.append('}');
    }
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kMethod:
    case Kind::kMacro:
      runtime.fail("a " + std::string(type_name(value)) + " has no text");
    default:
      append_text(runtime, out, value);
  }
}

void append_text(Runtime& runtime, Output& out, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return;
    case Kind::kNone:
      return out.append("None");
    case Kind::kBool:
      return out.append(value.boolean() ? "True" : "False");
    case Kind::kInt:
      return out.append(std::to_string(value.integer()));
    case Kind::kLargeInt:
      return out.append(value.large_integer().digits);
    case Kind::kFloat:
      return out.append(float_text(value.number()));
    case Kind::kString:
      return out.append(value.string());
    default:
      append_repr(runtime, out, value);
  }
}

Value to_string(Runtime& runtime, const Value& value) {
  if (value.is(Kind::kString)) return value;
  Output out(runtime);
  append_text(runtime, out, value);
  return runtime.string(std::move(out).take());
}

Value marked_safe(Runtime& runtime, const Value& text) {
  return text.text().safe ? text : runtime.string(std::string(text.string()), /*safe=*/true);
}

Value escaped(Runtime& runtime, const Value& value) {
  const Value text = to_string(runtime, value);
  if (text.text().safe) return text;
  runtime.walk(text.string().size());
  Output out(runtime);
  for (const char c : text.string()) {
    static constexpr std::string_view kEscaped = "&<>'\"";
    static constexpr std::array<std::string_view, 5> kNames{"&amp;", "&lt;", "&gt;", "&#39;",
                                                            "&#34;"};
    const std::size_t at = kEscaped.find(c);
    out.append(at == std::string_view::npos ? std::string_view(&c, 1) : kNames[at]);
  }
  return runtime.string(std::move(out).take(), /*safe=*/true);
}

void append_json(Runtime& runtime, Output& out, const Value& value, const JsonStyle& style,
                 int level) {
  runtime.step();
  switch (value.kind()) {
    case Kind::kNone:
      return out.append("null");
    case Kind::kBool:
      return out.append(value.boolean() ? "true" : "false");
    case Kind::kInt:
      return out.append(std::to_string(value.integer()));
    case Kind::kLargeInt:
      return out.append(value.large_integer().digits);
    case Kind::kFloat:
      return out.append(json_float(value.number()));
    case Kind::kString:
      return append_json_string(runtime, out, value.string(), style.ensure_ascii);
    case Kind::kDict:
      return append_json_dict(runtime, out, value.dict(), style, level);
    case Kind::kList:
      if (!value.is_generator()) return append_json_list(runtime, out, value.list(), style, level);
      [[fallthrough]];
    default:
      runtime.fail("Object of type " + std::string(type_name(value)) + " is not JSON serializable");
  }
}

}  // namespace canopy::jinja
