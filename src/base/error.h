#pragma once
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace canopy {

/// The one exception type of the project; what() reads from cause to context:
///   "short read: 512 of 4096 bytes (offload/io/uring_engine.cc:88)
///      while reading layer 12 of model-00002.safetensors
///      while sweeping the target model"
/// File and line come from builtins: std::source_location is missing under clang 14.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string_view cause, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE());
  Error with(std::string_view context) const;

 private:
  struct Whole {};
  Error(Whole, std::string message) : std::runtime_error(std::move(message)) {}
};

/// Thrown when a stop request ended the work; nothing is wrong. Not an Error, so nobody adds
/// context to it.
class Stopped : public std::exception {
 public:
  const char* what() const noexcept override { return "stopped on request"; }
};

/// Throws Error(cause) unless ok. For cheap causes only; build rich ones inside an if.
inline void require(bool ok, const char* cause, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) {
  if (!ok) throw Error(cause, file, line);
}

/// Runs body; an Error passing through gains a line of context.
template <class Body>
decltype(auto) in_context(std::string_view context, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const Error& e) {
    throw e.with(context);
  }
}

}  // namespace canopy
