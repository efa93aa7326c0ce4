#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace canopy::server {

/// A call that a model wrote, or a piece of one: without a name it has more arguments of the call
/// before it.
struct ToolCall {
  std::string id, name, arguments;  // arguments: JSON
  std::size_t at = 0;               // bytes of the answer's text before it
};

/// A scanner that follows calls while they are written, `{"name": NAME, "arguments": {...}}`, or
/// "parameters" in place of "arguments", one or a list of them: the arguments are reported as they
/// come. What is written in another way is not followed, nor what comes after it. One thread.
class CallScanner {
 public:
  explicit CallScanner(std::vector<std::string> names) : names_(std::move(names)) {}

  /// Returns the pieces of calls that `text` adds, without ids; at most one of each call.
  std::vector<ToolCall> push(std::string_view text);
  /// The answer is over: a call of which there is the name alone.
  std::vector<ToolCall> end() const;
  /// True if a call was reported.
  bool told() const { return told_; }

 private:
  enum class Place : std::uint8_t { kHead, kArguments, kBehind, kLost };

  void read_head(std::vector<ToolCall>& pieces);
  void read_arguments(char c, std::vector<ToolCall>& pieces);

  std::vector<std::string> names_;
  Place place_ = Place::kHead;
  std::string head_;  // of a call, up to where its arguments begin
  int depth_ = 0;     // of braces in the arguments
  bool in_string_ = false, escaped_ = false;
  bool told_ = false;
};

}  // namespace canopy::server
