#include "src/jinja/functions/arguments.h"

#include <algorithm>

#include "src/base/utf8.h"
#include "src/jinja/operators.h"

namespace canopy::jinja {

Parameters::Parameters(Runtime& runtime, std::string_view function, const Arguments& arguments,
                       std::initializer_list<std::string_view> names)
    : runtime_(runtime), function_(function), names_(names), given_(names.size()) {
  if (arguments.positional.size() > names.size())
    runtime.fail(std::string(function) + "() takes at most " + std::to_string(names.size()) +
                 " arguments, not " + std::to_string(arguments.positional.size()));
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    given_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end())
      runtime.fail(std::string(function) + "() has no parameter " + in_quotes(name));
    const Value*& slot = given_[static_cast<std::size_t>(at - names.begin())];
    if (slot) runtime.fail(std::string(function) + "() got " + in_quotes(name) + " twice");
    slot = &value;
  }
}

const Value& Parameters::require(std::size_t index) const {
  if (given_[index]) return *given_[index];
  runtime_.fail(std::string(function_) + "() lacks its argument '" +
                std::string(names_.begin()[index]) + "'");
}

bool Parameters::flag(std::size_t index, bool otherwise) const {
  return given_[index] ? truthy(*given_[index]) : otherwise;
}

std::string_view Parameters::require_string(std::size_t index) const {
  const Value& value = require(index);
  require_defined(runtime_, value);
  if (!value.is(Kind::kString))
    runtime_.fail(std::string(function_) + "(): '" + std::string(names_.begin()[index]) +
                  "' must be str, not " + std::string(type_name(value)));
  return value.string();
}

std::string_view Parameters::string(std::size_t index, std::string_view otherwise) const {
  return given_[index] ? require_string(index) : otherwise;
}

std::int64_t Parameters::integer(std::size_t index, std::int64_t otherwise) const {
  if (!given_[index]) return otherwise;
  require_defined(runtime_, *given_[index]);
  if (!given_[index]->is_integer())
    runtime_.fail(std::string(function_) + "(): '" + std::string(names_.begin()[index]) +
                  "' must be int, not " + std::string(type_name(*given_[index])));
  return given_[index]->integer();
}

}  // namespace canopy::jinja
