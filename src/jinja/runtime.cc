#include "src/jinja/runtime.h"

#include <algorithm>

#include "src/base/json.h"
#include "src/base/utf8.h"
#include "src/jinja/characters.h"
#include "src/jinja/error.h"

namespace canopy::jinja {

namespace {
std::string megabytes(std::size_t bytes) {
  return bytes >= 1u << 20 ? std::to_string(bytes >> 20) + " MiB"
                           : std::to_string(bytes) + " bytes";
}
}  // namespace

void Runtime::fail(std::string message) const { fail_at(source_, offset_, std::move(message)); }

void Runtime::step(std::size_t count) {
  steps_ += count;
  if (steps_ > limits_.steps)
    fail("the template takes more than " + std::to_string(limits_.steps) +
         " steps; an endless loop?");
}

void Runtime::take(std::size_t bytes) {
  if (bytes > limits_.memory_bytes - memory_)
    fail("the template holds more than " + megabytes(limits_.memory_bytes) + " of memory");
  memory_ += bytes;
}

void Runtime::check_size(std::size_t count, std::size_t bytes_each) const {
  if (bytes_each > 0 && count > limits_.memory_bytes / bytes_each)
    fail("the template asks for more than " + megabytes(limits_.memory_bytes) + " of memory");
}

Value Runtime::string(std::string bytes, bool safe) {
  Charge charge(*this);
  charge.grow(sizeof(Text) + bytes.size());
  step(1 + bytes.size() / 256);
  const std::size_t characters = count_characters(bytes);
  return Value(
      std::make_shared<const Text>(Text{std::move(bytes), characters, std::move(charge), safe}));
}

Value Runtime::list(std::vector<Value> items, ListKind kind) {
  Charge charge(*this);
  charge.grow(sizeof(List) + items.size() * sizeof(Value));
  step(1 + items.size() / 4);
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  if (depth >= kMostValueDepth)
    fail("lists and dicts lie more than " + std::to_string(kMostValueDepth) +
         " levels inside each other");
  return Value(std::make_shared<const List>(
      List{std::move(items), kind, depth + 1, false, std::move(charge)}));
}

Value Runtime::dict(std::vector<std::pair<Value, Value>> entries) {
  Charge charge(*this);
  charge.grow(sizeof(Dict) + entries.size() * 2 * sizeof(Value));
  step(1 + entries.size() / 4);
  int depth = 0;
  for (const auto& [key, value] : entries) depth = std::max(depth, value.depth());
  if (depth >= kMostValueDepth)
    fail("lists and dicts lie more than " + std::to_string(kMostValueDepth) +
         " levels inside each other");
  return Value(
      std::make_shared<const Dict>(Dict{std::move(entries), depth + 1, std::move(charge)}));
}

Value Runtime::name_space(std::vector<std::pair<std::string, Value>> members) {
  auto made = std::make_unique<Namespace>();
  made->charge = Charge(*this);
  made->charge.grow(sizeof(Namespace));
  made->members = std::move(members);
  namespaces_.push_back(std::move(made));
  return Value(namespaces_.back().get());
}

Value Runtime::bound(const Method& method, Value self) {
  return Value(std::make_shared<const BoundMethod>(BoundMethod{&method, std::move(self)}));
}

Value Runtime::undefined(std::string why) const {
  return Value(Undefined{std::make_shared<const std::string>(std::move(why))});
}

Value Runtime::from_json(const nlohmann::ordered_json& json) { return from_json(json, 0); }

Value Runtime::from_json(const nlohmann::ordered_json& json, int depth) {
  if (depth == kMostValueDepth)
    fail("a variable has more than " + std::to_string(kMostValueDepth) + " levels");
  const auto text = [](const std::string& s) {
    return Value::literal(is_utf8(s) ? s : to_utf8(s));
  };
  if (auto digits = large_integer(json))
    return Value(std::make_shared<const LargeInt>(LargeInt{std::move(*digits)}));
  switch (json.type()) {
    case nlohmann::json::value_t::boolean:
      return Value(json.get<bool>());
    case nlohmann::json::value_t::number_unsigned:
    case nlohmann::json::value_t::number_integer:
      return Value(json.get<std::int64_t>());
    case nlohmann::json::value_t::number_float:
      return Value(json.get<double>());
    case nlohmann::json::value_t::string:
      return text(json.get_ref<const std::string&>());
    case nlohmann::json::value_t::array: {
      List made;
      made.items.reserve(json.size());
      for (const auto& item : json) {
        made.items.push_back(from_json(item, depth + 1));
        made.depth = std::max(made.depth, 1 + made.items.back().depth());
      }
      return Value(std::make_shared<const List>(std::move(made)));
    }
    case nlohmann::json::value_t::object: {
      Dict made;
      made.entries.reserve(json.size());
      for (const auto& [key, item] : json.items()) {
        made.entries.emplace_back(text(key), from_json(item, depth + 1));
        made.depth = std::max(made.depth, 1 + made.entries.back().second.depth());
      }
      return Value(std::make_shared<const Dict>(std::move(made)));
    }
    default:
      return Value(None{});
  }
}

Runtime::Evaluation::Evaluation(Runtime& runtime, std::uint32_t offset)
    : runtime_(runtime), before_(std::exchange(runtime.offset_, offset)) {
  runtime_.depth_ += 1;
  try {
    runtime_.step();
    if (runtime_.depth_ > kMostDepth)
      runtime_.fail("evaluation is nested deeper than " + std::to_string(kMostDepth) +
                    " levels; a macro that calls itself without end?");
  } catch (...) {  // this object's destructor will not run
    runtime_.depth_ -= 1;
    throw;
  }
}

void Output::append(std::string_view text) {
  runtime_->read(text.size());
  charge_.grow(text.size());
  text_.append(text);
}

}  // namespace canopy::jinja
