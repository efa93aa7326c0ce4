#include "src/server/call_scanner.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace canopy::server {

namespace {

constexpr std::size_t kMostHead = 1000;  // a name of 64 characters, each escaped, has 384 bytes

}  // namespace

/// A head is whole where a brace begins the value of its second member: with the two braces closed
/// it is JSON.
void CallScanner::read_head(std::vector<ToolCall>& pieces) {
  const std::string_view from = std::string_view(head_).substr(head_.find('{'));
  const auto call = nlohmann::ordered_json::parse(std::string(from) + "}}", nullptr, false);
  if (!call.is_object()) return;  // the brace stands elsewhere: in a name, or first
  place_ = Place::kLost;
  if (call.size() != 2 || call.begin().key() != "name" || !call.front().is_string()) return;
  const std::string& key = std::next(call.begin()).key();
  if (key != "arguments" && key != "parameters") return;
  if (std::find(names_.begin(), names_.end(), call.front()) == names_.end()) return;
  pieces.push_back({"", call.front(), "{"});
  told_ = true;
  place_ = Place::kArguments;
  head_.clear();
  depth_ = 1;
}

void CallScanner::read_arguments(char c, std::vector<ToolCall>& pieces) {
  if (pieces.empty()) pieces.emplace_back();
  pieces.back().arguments += c;
  if (in_string_) {
    in_string_ = escaped_ || c != '"';
    escaped_ = !escaped_ && c == '\\';
    return;
  }
  in_string_ = c == '"';
  depth_ += (c == '{') - (c == '}');
  if (depth_ == 0) place_ = Place::kBehind;
}

std::vector<ToolCall> CallScanner::push(std::string_view text) {
  std::vector<ToolCall> pieces;
  for (const char c : text) {
    if (place_ == Place::kArguments) {
      read_arguments(c, pieces);
    } else if (place_ == Place::kBehind) {  // the next call of a list begins after a comma
      if (c == ',') place_ = Place::kHead;
    } else if (place_ == Place::kHead) {
      head_ += c;
      if (c == '{' && head_.find('{') + 1 < head_.size()) read_head(pieces);
      if (head_.size() > kMostHead) place_ = Place::kLost;
    }
  }
  return pieces;
}

std::vector<ToolCall> CallScanner::end() const {
  const std::size_t begin = head_.find('{'), comma = head_.rfind(',');
  if (place_ != Place::kHead || begin > comma || comma == std::string::npos) return {};
  const auto call =
      nlohmann::ordered_json::parse(head_.substr(begin, comma - begin) + "}", nullptr, false);
  if (!call.is_object() || call.size() != 1 || call.begin().key() != "name") return {};
  if (std::find(names_.begin(), names_.end(), call.front()) == names_.end()) return {};
  return {{"", call.front(), ""}};
}

}  // namespace canopy::server
