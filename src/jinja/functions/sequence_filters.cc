// Filters that choose, order and gather.
#include <algorithm>
#include <array>

#include "src/jinja/characters.h"
#include "src/jinja/error.h"
#include "src/jinja/functions/arguments.h"
#include "src/jinja/functions/filters.h"
#include "src/jinja/operators.h"
#include "src/jinja/to_text.h"

namespace canopy::jinja {

namespace {

Value default_(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters given(runtime, "default", arguments, {"default_value", "boolean"});
  if (!subject.is(Kind::kUndefined) && (truthy(subject) || !given.flag(1, false))) return subject;
  return given.get(0) ? *given.get(0) : runtime.string("");
}

Value length_(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  Parameters(runtime, "length", arguments, {});
  return Value(length(runtime, subject));
}

Value list(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  Parameters(runtime, "list", arguments, {});
  return runtime.list(iterate(runtime, subject).all());
}

Value first(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  Parameters(runtime, "first", arguments, {});
  const auto items = iterate(runtime, subject);
  return items.all().empty() ? runtime.undefined("No first item, sequence was empty.")
                             : items.all().front();
}

Value last(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  Parameters(runtime, "last", arguments, {});
  if (subject.is_generator()) runtime.fail("'generator' object is not reversible");
  const auto items = iterate(runtime, subject);
  return items.all().empty() ? runtime.undefined("No last item, sequence was empty.")
                             : items.all().back();
}

Value join(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters given(runtime, "join", arguments, {"d", "attribute"});
  const Value separator = given.get(0) ? to_string(runtime, *given.get(0)) : runtime.string("");
  Output out(runtime);
  bool begun = false;
  for (const Value& item : iterate(runtime, subject)) {
    runtime.step();
    if (begun) out.append(separator.string());
    begun = true;
    append_text(runtime, out, given.has(1) ? attribute_path(runtime, item, *given.get(1)) : item);
  }
  return runtime.string(std::move(out).take());
}

Value items(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  Parameters(runtime, "items", arguments, {});
  if (subject.is(Kind::kUndefined)) return runtime.list({}, ListKind::kGenerator);
  if (!subject.is(Kind::kDict)) runtime.fail("Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  for (const auto& [key, value] : subject.dict().entries)
    pairs.push_back(runtime.list({key, value}, ListKind::kTuple));
  return runtime.list(std::move(pairs), ListKind::kGenerator);
}

/// Returns the key that items are ordered or compared by: of strings without case, unless case is
/// asked for.
Value order_key(Runtime& runtime, const Value& item, const Value* path, bool case_sensitive) {
  const Value key = path ? attribute_path(runtime, item, *path) : item;
  if (case_sensitive || !key.is(Kind::kString)) return key;
  runtime.walk(key.string().size());
  return runtime.string(to_lower(key.string()));
}

/// Stable, by the keys.
std::vector<Value> sorted(Runtime& runtime, std::vector<std::pair<Value, Value>> keyed,
                          bool reverse) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? less(runtime, b.first, a.first) : less(runtime, a.first, b.first);
  });
  std::vector<Value> out;
  for (auto& [key, item] : keyed) out.push_back(std::move(item));
  return out;
}

Value sort(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters given(runtime, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : iterate(runtime, subject))
    keyed.emplace_back(
        order_key(runtime, item, given.has(2) ? given.get(2) : nullptr, given.flag(1, false)),
        item);
  return runtime.list(sorted(runtime, std::move(keyed), given.flag(0, false)));
}

Value dictsort(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters given(runtime, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string_view by = given.string(1, "key");
  if (by != "key" && by != "value")
    runtime.fail("You can only sort by either \"key\" or \"value\"");
  if (!subject.is(Kind::kDict)) {
    require_defined(runtime, subject);
    runtime.fail(joined({"'", type_name(subject), "' object has no attribute 'items'"}));
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : subject.dict().entries)
    keyed.emplace_back(order_key(runtime, by == "key" ? key : value, nullptr, given.flag(0, false)),
                       runtime.list({key, value}, ListKind::kTuple));
  return runtime.list(sorted(runtime, std::move(keyed), given.flag(2, false)));
}

Value unique(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters given(runtime, "unique", arguments, {"case_sensitive", "attribute"});
  std::vector<Value> seen, out;
  for (const Value& item : iterate(runtime, subject)) {
    const Value key =
        order_key(runtime, item, given.has(1) ? given.get(1) : nullptr, given.flag(0, false));
    const auto same = [&](const Value& other) { return equal(runtime, key, other); };
    if (std::any_of(seen.begin(), seen.end(), same)) continue;
    seen.push_back(key);
    out.push_back(item);
  }
  return runtime.list(std::move(out), ListKind::kGenerator);
}

Value reverse(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  Parameters(runtime, "reverse", arguments, {});
  if (subject.is(Kind::kString))
    return slice(runtime, subject, Value(None{}), Value(None{}), Value(std::int64_t{-1}));
  std::vector<Value> out = iterate(runtime, subject).all();
  std::reverse(out.begin(), out.end());
  return runtime.list(std::move(out), ListKind::kGenerator);
}

/// Returns the items that map() and its like run over: no items where the value is false, so that
/// none is allowed.
Items items_if_any(Runtime& runtime, const Value& subject) {
  return truthy(subject) ? iterate(runtime, subject) : iterate(runtime, Value());
}

/// The arguments from the one at `begin` on.
Arguments rest_of(const Arguments& arguments, std::size_t begin) {
  Arguments rest;
  for (std::size_t i = begin; i < arguments.positional.size(); ++i)
    rest.positional.push_back(arguments.positional[i]);
  rest.named = arguments.named;
  return rest;
}

Value map(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  std::vector<Value> out;
  if (arguments.positional.empty()) {
    const Parameters given(runtime, "map", arguments, {"attribute", "default"});
    for (const Value& item : items_if_any(runtime, subject)) {
      Value found = attribute_path(runtime, item, given.require(0));
      if (found.is(Kind::kUndefined) && given.get(1)) found = *given.get(1);
      out.push_back(std::move(found));
    }
    return runtime.list(std::move(out), ListKind::kGenerator);
  }
  if (!arguments.positional[0].is(Kind::kString)) runtime.fail("map() needs a filter's name");
  const Arguments rest = rest_of(arguments, 1);
  for (const Value& item : items_if_any(runtime, subject)) {
    runtime.step();
    out.push_back(apply_filter(runtime, arguments.positional[0].string(), item, rest));
  }
  return runtime.list(std::move(out), ListKind::kGenerator);
}

/// select, reject and their forms with an attribute, which is then the first argument.
Value choose(Runtime& runtime, const Value& subject, const Arguments& arguments, bool by_attribute,
             bool wanted) {
  const std::size_t test = by_attribute ? 1 : 0;
  if (by_attribute && arguments.positional.empty())
    runtime.fail("Missing parameter for attribute name");
  const bool has_name = arguments.positional.size() > test;
  if (has_name && !arguments.positional[test].is(Kind::kString))
    runtime.fail("the name of a test must be str");
  const Arguments rest = rest_of(arguments, test + 1);
  std::vector<Value> out;
  for (const Value& item : items_if_any(runtime, subject)) {
    runtime.step();
    const Value value =
        by_attribute ? attribute_path(runtime, item, arguments.positional[0]) : item;
    const bool holds = has_name
                           ? apply_test(runtime, arguments.positional[test].string(), value, rest)
                           : truthy(value);
    if (holds == wanted) out.push_back(item);
  }
  return runtime.list(std::move(out), ListKind::kGenerator);
}

Value select(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  return choose(runtime, subject, arguments, /*by_attribute=*/false, /*wanted=*/true);
}
Value reject(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  return choose(runtime, subject, arguments, /*by_attribute=*/false, /*wanted=*/false);
}
Value selectattr(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  return choose(runtime, subject, arguments, /*by_attribute=*/true, /*wanted=*/true);
}
Value rejectattr(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  return choose(runtime, subject, arguments, /*by_attribute=*/true, /*wanted=*/false);
}

/// The item with the least key, or the greatest.
Value extreme(Runtime& runtime, const Value& subject, const Parameters& given, bool greatest) {
  const Value* path = given.has(1) ? given.get(1) : nullptr;
  const auto items = iterate(runtime, subject);
  if (items.all().empty()) return runtime.undefined("No aggregated item, sequence was empty.");
  const Value* best = &items.all()[0];
  Value best_key = order_key(runtime, *best, path, given.flag(0, false));
  for (const Value& item : items.all()) {
    Value key = order_key(runtime, item, path, given.flag(0, false));
    if (!(greatest ? less(runtime, best_key, key) : less(runtime, key, best_key))) continue;
    best = &item;
    best_key = std::move(key);
  }
  return *best;
}

Value min(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters given(runtime, "min", arguments, {"case_sensitive", "attribute"});
  return extreme(runtime, subject, given, /*greatest=*/false);
}

Value max(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters given(runtime, "max", arguments, {"case_sensitive", "attribute"});
  return extreme(runtime, subject, given, /*greatest=*/true);
}

Value sum(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters given(runtime, "sum", arguments, {"attribute", "start"});
  Value total = given.get(1) ? *given.get(1) : Value(std::int64_t{0});
  for (const Value& item : iterate(runtime, subject))
    total = arithmetic(runtime, Operator::kAdd, total,
                       given.has(0) ? attribute_path(runtime, item, *given.get(0)) : item);
  return total;
}

Value attr(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters given(runtime, "attr", arguments, {"name"});
  if (subject.is(Kind::kDict) && !find_method(subject, given.require_string(0)))
    return runtime.undefined("'dict object' has no attribute '" +
                             std::string(given.require_string(0)) + "'");
  return attribute(runtime, subject, given.require_string(0));
}

}  // namespace

std::span<const Filter> sequence_filters() {
  static constexpr std::array kFilters{Filter{"default", default_},
                                       Filter{"d", default_},
                                       Filter{"length", length_},
                                       Filter{"count", length_},
                                       Filter{"list", list},
                                       Filter{"first", first},
                                       Filter{"last", last},
                                       Filter{"join", join},
                                       Filter{"items", items},
                                       Filter{"sort", sort},
                                       Filter{"dictsort", dictsort},
                                       Filter{"unique", unique},
                                       Filter{"reverse", reverse},
                                       Filter{"map", map},
                                       Filter{"select", select},
                                       Filter{"reject", reject},
                                       Filter{"selectattr", selectattr},
                                       Filter{"rejectattr", rejectattr},
                                       Filter{"min", min},
                                       Filter{"max", max},
                                       Filter{"sum", sum},
                                       Filter{"attr", attr}};
  return kFilters;
}

}  // namespace canopy::jinja
