#pragma once
#include <initializer_list>
#include <string_view>
#include <vector>

#include "src/jinja/runtime.h"

namespace canopy::jinja {

/// The arguments of a filter, test, method or function by the names of its parameters. Throws
/// TemplateError for one too many, one given twice, and a name that it does not have.
class Parameters {
 public:
  Parameters(Runtime& runtime, std::string_view function, const Arguments& arguments,
             std::initializer_list<std::string_view> names);

  /// Null if it is not given.
  const Value* get(std::size_t index) const { return given_[index]; }
  const Value& require(std::size_t index) const;
  bool flag(std::size_t index, bool otherwise) const;
  /// Throws TemplateError unless it is a string.
  std::string_view string(std::size_t index, std::string_view otherwise) const;
  std::string_view require_string(std::size_t index) const;
  std::int64_t integer(std::size_t index, std::int64_t otherwise) const;
  /// True if it is given and not none.
  bool has(std::size_t index) const { return given_[index] && !given_[index]->is(Kind::kNone); }

 private:
  Runtime& runtime_;
  std::string_view function_;
  std::initializer_list<std::string_view> names_;
  std::vector<const Value*> given_;
};

}  // namespace canopy::jinja
