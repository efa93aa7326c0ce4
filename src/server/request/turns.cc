#include "src/server/request/turns.h"

#include <optional>
#include <utility>

namespace canopy::server {

using Json = nlohmann::ordered_json;

std::string in_list(const std::string& place, std::size_t at) {
  return place + "[" + std::to_string(at) + "]";
}

void add_line(std::string& text, const std::string& line) {
  if (!text.empty() && !line.empty()) text += "\n";
  text += line;
}

std::string required_text(Fields& object, const char* name) {
  std::optional<std::string> text = object.text(name);
  if (!text) object.fail(name, "is missing");
  return *std::move(text);
}

void add_turn(Json& messages, Json turn, bool joins) {
  if (!joins || messages.empty() || messages.back()["role"] != turn["role"]) {
    messages.push_back(std::move(turn));
    return;
  }
  Json& last = messages.back();
  for (const char* name : {"content", "reasoning_content"}) {
    if (!turn.contains(name)) continue;
    std::string text = last.contains(name) ? last[name].get<std::string>() : "";
    add_line(text, turn[name]);
    last[name] = std::move(text);
  }
  if (!turn.contains("tool_calls")) return;
  if (!last.contains("tool_calls")) last["tool_calls"] = Json::array();
  for (Json& call : turn["tool_calls"]) last["tool_calls"].push_back(std::move(call));
}

}  // namespace canopy::server
