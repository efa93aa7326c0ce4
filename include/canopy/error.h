#pragma once
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

namespace canopy {

/// The one exception type of the project; what() reads from cause to context:
///   "short read: 512 of 4096 bytes (offload/io/uring_engine.cc:88)
///      while reading layer 12 of model-00002.safetensors
///      while sweeping the target model"
/// File and line come from builtins: std::source_location is missing under clang 14.
class __attribute__((visibility("default"))) Error : public std::runtime_error {
 public:
  explicit Error(std::string_view cause, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE());
  Error with(std::string_view context) const;

 private:
  struct Whole {};
  Error(Whole, const std::string& message) : std::runtime_error(message) {}
};

/// Thrown when a stop request ended the work; nothing is wrong. Not an Error, so nobody adds
/// context to it.
class __attribute__((visibility("default"))) Stopped : public std::exception {
 public:
  const char* what() const noexcept override { return "stopped on request"; }
};

}  // namespace canopy
