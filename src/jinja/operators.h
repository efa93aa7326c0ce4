#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/jinja/parse/ast.h"
#include "src/jinja/runtime.h"

namespace canopy::jinja {

// Python's operators, as templates see them. All throw TemplateError through `runtime`.

bool truthy(const Value& value);
bool equal(Runtime& runtime, const Value& a, const Value& b);
/// True if a < b. `op`: the operator that the message for values without an order names.
bool less(Runtime& runtime, const Value& a, const Value& b, std::string_view op = "<");
bool contains(Runtime& runtime, const Value& container, const Value& item);
Value arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b);
Value sign(Runtime& runtime, Operator op, const Value& value);  // + or - before a value
/// One comparison that is not of two ends.
bool compare(Runtime& runtime, Operator op, const Value& a, const Value& b);

/// "str", "dict", "NoneType", ... as Python calls it.
std::string_view type_name(const Value& value);
/// Throws TemplateError with the reason if the value is undefined.
void require_defined(Runtime& runtime, const Value& value);

/// object.name: methods first, then what a dict has.
Value attribute(Runtime& runtime, const Value& object, std::string_view name);
/// object[key]: what the object has, then its methods.
Value item(Runtime& runtime, const Value& object, const Value& key);
/// object[start:stop:step]; what is left out is none.
Value slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
            const Value& step);
/// The items that a loop runs over, held for as long as it runs.
class Items {
 public:
  Items(std::shared_ptr<const List> list) : list_(std::move(list)) {}
  auto begin() const { return list_->items.begin(); }
  auto end() const { return list_->items.end(); }
  const std::vector<Value>& all() const { return list_->items; }
  const std::shared_ptr<const List>& list() const { return list_; }

 private:
  std::shared_ptr<const List> list_;
};

/// Items, keys, or characters. A generator gives its items once.
Items iterate(Runtime& runtime, const Value& value);
/// len(value)
std::int64_t length(Runtime& runtime, const Value& value);
/// "a.b.0": attribute after attribute, as map(attribute=...) has it.
Value attribute_path(Runtime& runtime, const Value& object, const Value& path);

/// The methods of a type, by name; null if Python has none or it is not supported.
const Method* find_method(const Value& object, std::string_view name);
/// Calls a method. Of a safe string the texts that it gives are safe, too.
Value call_method(Runtime& runtime, const Method& method, const Value& self,
                  const Arguments& arguments);
/// A global function; null if there is none.
const Method* find_function(std::string_view name);

}  // namespace canopy::jinja
