// Attributes, items, slices and iteration.
#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "src/jinja/characters.h"
#include "src/jinja/error.h"
#include "src/jinja/operators.h"
#include "src/jinja/to_text.h"

namespace canopy::jinja {

namespace {

/// The type as messages of undefined values name it.
std::string object_name(const Value& object) {
  if (object.is(Kind::kNone)) return "None";
  if (object.is(Kind::kNamespace)) return "namespace object";
  return std::string(type_name(object)) + " object";
}

Value no_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  return runtime.undefined(joined({"'", object_name(object), "' has no attribute '", name, "'"}));
}

/// True if Python has it and Jinja's sandbox forbids it: it changes a list or a dict.
bool is_unsafe(const Value& object, std::string_view name) {
  static constexpr std::array<std::string_view, 8> kOfLists{"append", "extend", "insert",  "pop",
                                                            "remove", "clear",  "reverse", "sort"};
  static constexpr std::array<std::string_view, 5> kOfDicts{"clear", "pop", "popitem", "setdefault",
                                                            "update"};
  const auto has = [&](const auto& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (object.is(Kind::kDict)) return has(kOfDicts);
  return object.is(Kind::kList) && object.list().kind == ListKind::kList && has(kOfLists);
}

Value loop_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  const Loop& loop = object.loop();
  const auto& items = loop.items->items;
  const auto at = static_cast<std::int64_t>(loop.at);
  const auto count = static_cast<std::int64_t>(items.size());
  if (name == "index") return Value(at + 1);
  if (name == "index0") return Value(at);
  if (name == "revindex") return Value(count - at);
  if (name == "revindex0") return Value(count - at - 1);
  if (name == "first") return Value(at == 0);
  if (name == "last") return Value(at + 1 == count);
  if (name == "length") return Value(count);
  if (name == "depth") return Value(std::int64_t{1});
  if (name == "depth0") return Value(std::int64_t{0});
  if (name == "previtem")
    return at > 0 ? items[loop.at - 1] : runtime.undefined("there is no previous item");
  if (name == "nextitem")
    return at + 1 < count ? items[loop.at + 1] : runtime.undefined("there is no next item");
  if (const Method* method = find_method(object, name)) return runtime.bound(*method, object);
  return no_attribute(runtime, object, name);
}

/// The method or member that Python's getattr() gives, if any.
std::optional<Value> python_attribute(Runtime& runtime, const Value& object,
                                      std::string_view name) {
  if (object.is(Kind::kLoop)) return loop_attribute(runtime, object, name);
  if (object.is(Kind::kNamespace)) {
    const Value* found = object.name_space().find(name);
    return found ? std::optional(*found) : std::nullopt;
  }
  if (is_unsafe(object, name))
    return runtime.undefined("access to attribute '" + std::string(name) + "' of '" +
                             std::string(type_name(object)) + "' object is unsafe.");
  if (const Method* method = find_method(object, name)) return runtime.bound(*method, object);
  return {};
}

/// The character of a string, by its number.
std::optional<Value> character(Runtime& runtime, const Text& text, std::int64_t index) {
  const auto count = static_cast<std::int64_t>(text.characters);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return {};
  const std::string_view bytes = text.bytes;
  if (text.characters == bytes.size())
    return runtime.string(std::string(1, bytes[static_cast<std::size_t>(index)]), text.safe);
  runtime.walk(bytes.size());
  const auto starts = character_starts(bytes);
  const std::size_t from = starts[static_cast<std::size_t>(index)];
  return runtime.string(
      std::string(bytes.substr(from, starts[static_cast<std::size_t>(index) + 1] - from)),
      text.safe);
}

std::optional<Value> subscript(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is(Kind::kDict)) {
    const Value* found = object.dict().find(runtime, key);
    return found ? std::optional(*found) : std::nullopt;
  }
  if (!key.is_integer()) return {};
  if (object.is(Kind::kString)) return character(runtime, object.text(), key.integer());
  if (!object.is(Kind::kList) || object.is_generator()) return {};
  const auto& items = object.list().items;
  const auto count = static_cast<std::int64_t>(items.size());
  const std::int64_t index = key.integer() < 0 ? key.integer() + count : key.integer();
  if (index < 0 || index >= count) return {};
  return items[static_cast<std::size_t>(index)];
}

/// An end of a slice, or `otherwise` for none.
std::int64_t bound_of(Runtime& runtime, const Value& value, std::int64_t otherwise) {
  if (value.is(Kind::kNone)) return otherwise;
  if (!value.is_integer())
    runtime.fail("slice indices must be integers or None or have an __index__ method");
  return value.integer();
}

/// The indices that object[start:stop:step] takes of `count`, as Python's slice.indices().
std::vector<std::size_t> slice_indices(Runtime& runtime, std::int64_t count, const Value& start,
                                       const Value& stop, const Value& step) {
  // Bounded, so that no sum of these overflows.
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max() / 4;
  const std::int64_t by = std::clamp(bound_of(runtime, step, 1), -kFar, kFar);
  if (by == 0) runtime.fail("slice step cannot be zero");
  const std::int64_t lowest = by > 0 ? 0 : -1, highest = by > 0 ? count : count - 1;
  const auto place = [&](const Value& value, std::int64_t otherwise) {
    if (value.is(Kind::kNone)) return otherwise;
    const std::int64_t at = std::clamp(bound_of(runtime, value, 0), -kFar, kFar);
    return std::clamp(at < 0 ? at + count : at, lowest, highest);
  };
  const std::int64_t from = place(start, by > 0 ? lowest : highest);
  const std::int64_t to = place(stop, by > 0 ? highest : lowest);
  std::vector<std::size_t> out;
  for (std::int64_t i = from; by > 0 ? i < to : i > to; i += by)
    out.push_back(static_cast<std::size_t>(i));
  runtime.step(out.size() / 4);
  return out;
}

}  // namespace

Value attribute(Runtime& runtime, const Value& object, std::string_view name) {
  require_defined(runtime, object);
  if (std::optional<Value> found = python_attribute(runtime, object, name)) return *found;
  if (object.is(Kind::kDict))
    if (const Value* value = object.dict().find(runtime, name)) return *value;
  return no_attribute(runtime, object, name);
}

Value item(Runtime& runtime, const Value& object, const Value& key) {
  require_defined(runtime, object);
  if (std::optional<Value> found = subscript(runtime, object, key)) return *found;
  if (key.is(Kind::kString)) {
    if (std::optional<Value> found = python_attribute(runtime, object, key.string())) return *found;
    return no_attribute(runtime, object, key.string());
  }
  Output text(runtime);
  append_repr(runtime, text, key);
  return runtime.undefined(object_name(object) + " has no element " + std::move(text).take());
}

Value slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
            const Value& step) {
  require_defined(runtime, object);
  if (object.is(Kind::kString)) {
    const Text& text = object.text();
    const auto indices =
        slice_indices(runtime, static_cast<std::int64_t>(text.characters), start, stop, step);
    runtime.read(text.bytes.size());
    std::string out;
    if (text.characters == text.bytes.size()) {
      for (const std::size_t i : indices) out += text.bytes[i];
    } else {
      const auto starts = character_starts(text.bytes);
      for (const std::size_t i : indices)
        out.append(text.bytes, starts[i], starts[i + 1] - starts[i]);
    }
    return runtime.string(std::move(out), text.safe);
  }
  if (!object.is(Kind::kList) || object.is_generator())
    return runtime.undefined(object_name(object) + " has no element slice");
  const auto& items = object.list().items;
  std::vector<Value> out;
  for (const std::size_t i :
       slice_indices(runtime, static_cast<std::int64_t>(items.size()), start, stop, step))
    out.push_back(items[i]);
  return runtime.list(std::move(out), object.list().kind);
}

Items iterate(Runtime& runtime, const Value& value) {
  static const auto kNothing = std::make_shared<const List>();
  switch (value.kind()) {
    case Kind::kUndefined:
      return kNothing;
    case Kind::kList:
      if (value.is_generator() && std::exchange(value.list().used, true)) return kNothing;
      return value.shared_list();
    case Kind::kDict: {
      std::vector<Value> keys;
      for (const auto& [key, item] : value.dict().entries) keys.push_back(key);
      return runtime.list(std::move(keys)).shared_list();
    }
    case Kind::kString: {
      std::string_view rest = value.string();
      std::vector<Value> characters;
      while (!rest.empty()) {
        const auto starts = character_starts(rest.substr(0, std::min<std::size_t>(rest.size(), 4)));
        characters.push_back(runtime.string(std::string(rest.substr(0, starts[1]))));
        rest.remove_prefix(starts[1]);
      }
      return runtime.list(std::move(characters)).shared_list();
    }
    default:
      runtime.fail(joined({"'", type_name(value), "' object is not iterable"}));
  }
}

std::int64_t length(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<std::int64_t>(value.text().characters);
    case Kind::kDict:
      return static_cast<std::int64_t>(value.dict().entries.size());
    case Kind::kLoop:
      return static_cast<std::int64_t>(value.loop().items->items.size());
    case Kind::kList:
      if (!value.is_generator()) return static_cast<std::int64_t>(value.list().items.size());
      [[fallthrough]];
    default:
      runtime.fail("object of type '" + std::string(type_name(value)) + "' has no len()");
  }
}

Value attribute_path(Runtime& runtime, const Value& object, const Value& path) {
  if (!path.is(Kind::kString)) return item(runtime, object, path);
  Value found = object;
  std::string_view rest = path.string();
  for (;;) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    std::int64_t number = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), number);
    const bool index = !part.empty() && part[0] != '-' && parsed.ec == std::errc() &&
                       parsed.ptr == part.data() + part.size();
    found = item(runtime, found, index ? Value(number) : runtime.string(std::string(part)));
    if (part.size() == rest.size()) return found;
    rest.remove_prefix(part.size() + 1);
  }
}

}  // namespace canopy::jinja
