// Methods of dicts, lists and loops, and the global functions.
#include <time.h>

#include <algorithm>
#include <array>
#include <memory>
#include <type_traits>

#include "src/jinja/functions/arguments.h"
#include "src/jinja/functions/text_methods.h"
#include "src/jinja/limits.h"
#include "src/jinja/operators.h"
#include "src/jinja/to_text.h"

namespace canopy::jinja {

namespace {

Value dict_items(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Parameters(runtime, "items", arguments, {});
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.dict().entries)
    pairs.push_back(runtime.list({key, value}, ListKind::kTuple));
  return runtime.list(std::move(pairs));
}

Value dict_keys(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Parameters(runtime, "keys", arguments, {});
  return Value(iterate(runtime, self).list());
}

Value dict_values(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Parameters(runtime, "values", arguments, {});
  std::vector<Value> values;
  for (const auto& [key, value] : self.dict().entries) values.push_back(value);
  return runtime.list(std::move(values));
}

Value dict_get(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters given(runtime, "get", arguments, {"key", "default"});
  if (const Value* found = self.dict().find(runtime, given.require(0))) return *found;
  return given.get(1) ? *given.get(1) : Value(None{});
}

Value copy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Parameters(runtime, "copy", arguments, {});
  return self;  // neither can be changed
}

Value list_index(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Value& wanted = Parameters(runtime, "index", arguments, {"value"}).require(0);
  const auto& items = self.list().items;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (equal(runtime, items[i], wanted)) return Value(static_cast<std::int64_t>(i));
  runtime.fail("the list has no such item");
}

Value list_count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Value& wanted = Parameters(runtime, "count", arguments, {"value"}).require(0);
  const auto& items = self.list().items;
  return Value(
      static_cast<std::int64_t>(std::count_if(items.begin(), items.end(), [&](const Value& item) {
        return equal(runtime, item, wanted);
      })));
}

Value loop_cycle(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) runtime.fail("no items for cycling given");
  return arguments.positional[self.loop().at % arguments.positional.size()];
}

Value range(Runtime& runtime, const Value&, const Arguments& arguments) {
  const Parameters given(runtime, "range", arguments, {"start", "stop", "step"});
  given.require(0);
  const bool one = !given.get(1);
  const std::int64_t start = one ? 0 : given.integer(0, 0);
  const std::int64_t stop = given.integer(one ? 0 : 1, 0);
  const std::int64_t step = given.integer(2, 1);
  if (step == 0) runtime.fail("range() arg 3 must not be zero");
  std::vector<Value> out;
  std::int64_t at = start;
  while (step > 0 ? at < stop : at > stop) {
    if (out.size() == kMostRange)
      runtime.fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (" +
                   std::to_string(kMostRange) + ").");
    out.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return runtime.list(std::move(out));
}

/// The entries of a mapping, if one is given, and what is named.
template <class Key>
std::vector<std::pair<Key, Value>> gathered(Runtime& runtime, std::string_view function,
                                            const Arguments& arguments) {
  std::vector<std::pair<Key, Value>> out;
  if (arguments.positional.size() > 1)
    runtime.fail(std::string(function) + "() takes at most 1 argument and named ones");
  const auto put = [&](Key key, const Value& value) {
    for (auto& [name, old] : out) {
      bool same = false;
      if constexpr (std::is_same_v<Key, Value>)
        same = equal(runtime, name, key);
      else
        same = name == key;
      if (same) {
        old = value;
        return;
      }
    }
    out.emplace_back(std::move(key), value);
  };
  if (!arguments.positional.empty()) {
    if (!arguments.positional[0].is(Kind::kDict))
      runtime.fail(std::string(function) + "() takes a dict or named values");
    for (const auto& [key, value] : arguments.positional[0].dict().entries) {
      if constexpr (std::is_same_v<Key, Value>)
        put(key, value);
      else if (key.is(Kind::kString))
        put(std::string(key.string()), value);
    }
  }
  for (const auto& [name, value] : arguments.named) {
    if constexpr (std::is_same_v<Key, Value>)
      put(runtime.string(name), value);
    else
      put(name, value);
  }
  return out;
}

Value namespace_(Runtime& runtime, const Value&, const Arguments& arguments) {
  return runtime.name_space(gathered<std::string>(runtime, "namespace", arguments));
}

Value dict(Runtime& runtime, const Value&, const Arguments& arguments) {
  return runtime.dict(gathered<Value>(runtime, "dict", arguments));
}

Value raise_exception(Runtime& runtime, const Value&, const Arguments& arguments) {
  const Parameters given(runtime, "raise_exception", arguments, {"message"});
  given.require(0);
  runtime.fail(std::string(to_string(runtime, *given.get(0)).string()));
}

Value strftime_now(Runtime& runtime, const Value&, const Arguments& arguments) {
  const Parameters given(runtime, "strftime_now", arguments, {"format"});
  const std::string format(given.require_string(0));
  if (format.empty()) return runtime.string("");
  // English names, whatever language the program speaks.
  const std::unique_ptr<std::remove_pointer_t<locale_t>, decltype(&freelocale)> english(
      newlocale(LC_ALL_MASK, "C", nullptr), &freelocale);
  std::string out(1024, '\0');  // dates have less than 100 bytes
  const std::size_t bytes =
      strftime_l(out.data(), out.size(), format.c_str(), &runtime.now(), english.get());
  if (bytes == 0) runtime.fail("strftime_now(): the format gives nothing, or more than 1 KiB");
  out.resize(bytes);
  return runtime.string(std::move(out));
}

constexpr std::array kDictMethods{Method{"items", dict_items}, Method{"keys", dict_keys},
                                  Method{"values", dict_values}, Method{"get", dict_get},
                                  Method{"copy", copy}};
constexpr std::array kListMethods{Method{"index", list_index}, Method{"count", list_count},
                                  Method{"copy", copy}};
constexpr std::array kLoopMethods{Method{"cycle", loop_cycle}};
constexpr std::array kFunctions{Method{"range", range}, Method{"namespace", namespace_},
                                Method{"dict", dict}, Method{"raise_exception", raise_exception},
                                Method{"strftime_now", strftime_now}};

const Method* find(std::span<const Method> methods, std::string_view name) {
  for (const Method& method : methods)
    if (method.name == name) return &method;
  return nullptr;
}

}  // namespace

const Method* find_method(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kString: {
      const Method* found = find(text_methods(), name);
      return found ? found : find(text_search_methods(), name);
    }
    case Kind::kDict:
      return find(kDictMethods, name);
    case Kind::kList:
      return object.is_generator() ? nullptr : find(kListMethods, name);
    case Kind::kLoop:
      return find(kLoopMethods, name);
    default:
      return nullptr;
  }
}

Value call_method(Runtime& runtime, const Method& method, const Value& self,
                  const Arguments& arguments) {
  if (!self.is(Kind::kString) || !self.text().safe) return method.call(runtime, self, arguments);
  Arguments given = arguments;
  if (method.name == "replace" && given.positional.size() > 1)
    given.positional[1] = escaped(runtime, given.positional[1]);
  if (method.name == "format")
    for (Value& value : given.positional) value = escaped(runtime, value);
  if (method.name == "join" && !given.positional.empty()) {
    std::vector<Value> items;
    for (const Value& item : iterate(runtime, given.positional[0]))
      items.push_back(escaped(runtime, item));
    given.positional[0] = runtime.list(std::move(items));
  }
  const Value result = method.call(runtime, self, given);
  if (result.is(Kind::kString)) return marked_safe(runtime, result);
  if (!result.is(Kind::kList)) return result;
  std::vector<Value> parts;
  for (const Value& part : result.list().items) parts.push_back(marked_safe(runtime, part));
  return runtime.list(std::move(parts), result.list().kind);
}

const Method* find_function(std::string_view name) { return find(kFunctions, name); }

}  // namespace canopy::jinja
