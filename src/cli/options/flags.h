#pragma once
#include <boost/program_options.hpp>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/cli/command.h"

namespace canopy::cli {

// A command's flags are bound to the fields of a struct, its options: parse() fills them in, and
// everything after it reads the struct. The struct stays where it is until parse() has returned.

using Flags = boost::program_options::options_description;
template <class T>
using FlagValue = boost::program_options::typed_value<T>*;

/// Begins a model that is named by its repository on the Hugging Face Hub: -hf REPO is
/// -m hf:REPO. A file of such a name is ./hf:...
inline constexpr std::string_view kHubPrefix = "hf:";

/// A flag by its long name, with its values; "" for one that takes none.
struct GivenFlag {
  std::string name, value;
};
using GivenFlags = std::vector<GivenFlag>;

enum class Environment : bool { kIgnored, kTaken };
/// Meaning of the words without a flag: the model, or the model and then a --prompt.
enum class BareWords : bool { kModel, kModelAndPrompt };

/// Parses `words` by `flags` into the fields that these are bound to. Adds --help, answers it on
/// stdout with `usage` as its first lines, and is false then. Where "model" is a flag, a word
/// without a flag is its value; else it is that of "hf-repo", where that is one. Unknown flags,
/// missing values and repeated ones throw UsageError. Flags are never guessed from a prefix.
///
/// Environment::kTaken: a flag that is not among the words is taken from the environment,
/// --ctx-size from CANOPY_ARG_CTX_SIZE, and a note on stderr says so. A variable of that prefix
/// that names no flag throws UsageError. `given` gains what was given by either.
bool parse(const std::vector<std::string>& words, std::string_view usage, Flags flags,
           Environment environment = Environment::kIgnored, BareWords bare = BareWords::kModel,
           GivenFlags* given = nullptr);

/// The same, with what was given.
inline bool parse(const std::vector<std::string>& words, std::string_view usage, Flags flags,
                  GivenFlags& given, Environment environment = Environment::kIgnored) {
  return parse(words, usage, std::move(flags), environment, BareWords::kModel, &given);
}

/// Check that a value must pass; throws UsageError.
template <class T>
using FlagCheck = std::function<void(const T&)>;

template <class T>
FlagCheck<T> at_least(std::string flag, T least) {
  return [flag = std::move(flag), least](const T& value) {
    if (value >= least) return;  // a NaN is not
    std::ostringstream message;
    message << flag << ": must be at least " << least;
    throw UsageError(message.str());
  };
}

/// A flag without a value: true where it is given.
inline FlagValue<bool> given(bool& field) { return boost::program_options::bool_switch(&field); }

/// The default, which help shows, is what the field holds now.
template <class T>
FlagValue<T> into(T& field, const std::string& value_name,
                  const std::type_identity_t<FlagCheck<T>>& check = {}) {
  std::ostringstream text;
  text << field;
  FlagValue<T> value = boost::program_options::value<T>(&field);
  if (check) value->notifier(check);
  return value->value_name(value_name)->default_value(field, text.str());
}

/// The field stays empty where the flag is not given. What that means may stand in `value_name`, as
/// defaults do in help: "SIZE (=auto)".
template <class T>
FlagValue<T> into(std::optional<T>& field, const std::string& value_name,
                  const std::type_identity_t<FlagCheck<T>>& check = {}) {
  return boost::program_options::value<T>()
      ->value_name(value_name)
      ->notifier([&field, check](const T& value) {
        if (check) check(value);
        field = value;
      });
}

/// The same for what `read(flag, text)` makes of a text; it throws UsageError.
template <class T, class Read>
FlagValue<std::string> into(std::optional<T>& field, const std::string& value_name,
                            std::string flag, Read read) {
  return boost::program_options::value<std::string>()
      ->value_name(value_name)
      ->notifier([&field, flag = std::move(flag), read](const std::string& text) {
        field = read(flag, text);
      });
}

/// Such a value name: "K (=4)", with the default where the program has it.
template <class T>
std::string by_default(const char* value_name, const T& value) {
  std::ostringstream text;
  text << value_name << " (=" << value << ")";
  return text.str();
}

/// A flag that may be given several times; each value must pass the check.
inline FlagValue<std::vector<std::string>> into_all(std::vector<std::string>& field,
                                                    const char* value_name,
                                                    const FlagCheck<std::string>& check) {
  return boost::program_options::value<std::vector<std::string>>(&field)
      ->value_name(value_name)
      ->notifier([check](const std::vector<std::string>& values) {
        for (const std::string& value : values) check(value);
      });
}

/// A flag that must be given.
inline FlagValue<std::string> required(std::string& field, const char* value_name) {
  return boost::program_options::value<std::string>(&field)->value_name(value_name)->required();
}

}  // namespace canopy::cli
