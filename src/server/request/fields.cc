#include "src/server/request/fields.h"

#include <cmath>
#include <sstream>
#include <utility>

#include "src/base/json.h"

namespace canopy::server {

Fields::Fields(const Json& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {
  if (object.is_object()) return;
  if (prefix_.empty()) throw ApiError(400, "the body is not a JSON object");
  const std::string name = prefix_.substr(0, prefix_.size() - 1);
  throw ApiError(400, "'" + name + "' is not an object", name);
}

void Fields::fail(const std::string& name, const std::string& what) const {
  throw ApiError(400, "'" + prefix_ + name + "' " + what, prefix_ + name);
}

const Fields::Json* Fields::any(const std::string& name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> Fields::flag(const std::string& name) {
  const Json* value = any(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) fail(name, "must be true or false");
  return value->get<bool>();
}

std::optional<std::int64_t> Fields::whole(const std::string& name) {
  const Json* value = any(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<std::int64_t> whole = integer_in<std::int64_t>(*value);
  if (!whole) fail(name, "must be a whole number");
  return whole;
}

std::optional<int> Fields::integer(const std::string& name, int least, int most) {
  const std::optional<std::int64_t> value = whole(name);
  if (!value) return std::nullopt;
  if (*value < least || *value > most)
    fail(name, "must be from " + std::to_string(least) + " to " + std::to_string(most));
  return static_cast<int>(*value);
}

std::optional<double> Fields::number(const std::string& name, double least, double most) {
  const Json* value = any(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) fail(name, "must be a number");
  const auto number = value->get<double>();
  if (!(number >= least && number <= most)) {
    std::ostringstream range;
    range << "must be from " << least << " to " << most;
    fail(name, range.str());
  }
  return number;
}

std::optional<std::string> Fields::text(const std::string& name) {
  const Json* value = any(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(name, "must be a string");
  return value->get<std::string>();
}

void Fields::pass_over(std::initializer_list<const char*> names) {
  for (const char* name : names) known_.insert(name);
}

void Fields::refuse_others() const {
  for (const auto& [name, value] : object_.items())
    if (!known_.contains(name) && !value.is_null()) fail(name, "is not supported");
}

}  // namespace canopy::server
