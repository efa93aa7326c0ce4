#include "src/jinja/value.h"

#include <algorithm>
#include <cstdlib>

#include "src/jinja/characters.h"
#include "src/jinja/operators.h"
#include "src/jinja/runtime.h"

namespace canopy::jinja {

Charge::~Charge() {
  if (bytes_ > 0) runtime_->give_back(bytes_);
}

void Charge::grow(std::size_t bytes) {
  runtime_->take(bytes);
  bytes_ += bytes;
}

const Value* Dict::find(Runtime& runtime, const Value& key) const {
  if (key.is(Kind::kString)) return find(runtime, key.string());
  runtime.step(entries.size() / 8);
  for (const auto& [name, value] : entries)
    if (equal(runtime, name, key)) return &value;
  return nullptr;
}

const Value* Dict::find(Runtime& runtime, std::string_view key) const {
  runtime.step(entries.size() / 8);
  for (const auto& [name, value] : entries)
    if (name.is(Kind::kString) && name.string() == key) return &value;
  return nullptr;
}

Value* Namespace::find(std::string_view name) {
  for (auto& [key, value] : members)
    if (key == name) return &value;
  return nullptr;
}

Value Value::literal(std::string text) {
  const std::size_t characters = count_characters(text);
  return Value(std::make_shared<const Text>(Text{std::move(text), characters, Charge(), false}));
}

double Value::number() const {
  if (is(Kind::kFloat)) return std::get<double>(storage_);
  if (!is(Kind::kLargeInt)) return static_cast<double>(integer());
  return std::strtod(large_integer().digits.c_str(), nullptr);
}

bool Value::same_object(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kBool:
    case Kind::kInt:
      return integer() == other.integer();
    case Kind::kLargeInt:
      return large_integer().digits == other.large_integer().digits;
    case Kind::kFloat:
      return number() == other.number();
    case Kind::kString:  // equal ones are one object where a template can see it
      return string() == other.string();
    case Kind::kList:
      return &list() == &other.list();
    case Kind::kDict:
      return &dict() == &other.dict();
    case Kind::kNamespace:
      return &name_space() == &other.name_space();
    case Kind::kLoop:
      return &loop() == &other.loop();
    case Kind::kMethod:
      return &method() == &other.method();
    case Kind::kMacro:
      return &macro() == &other.macro();
  }
  return false;
}

int Value::depth() const {
  switch (kind()) {
    case Kind::kList:
      return list().depth;
    case Kind::kDict:
      return dict().depth;
    case Kind::kLoop:
      return loop().items->depth + 1;
    case Kind::kMethod:
      return method().self.depth();
    default:
      return 0;
  }
}

}  // namespace canopy::jinja
