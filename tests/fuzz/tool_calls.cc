// What a model writes where it may call tools, in pieces of any length: the first byte says how.
#include "src/server/tools.h"
#include "tests/fuzz/fuzz.h"

namespace canopy::fuzz {

void fuzz_one(std::string_view input) {
  if (input.size() < 2) return;
  const auto how = static_cast<unsigned char>(input[0]);
  const server::Tool tool{"look", nlohmann::ordered_json::parse(R"({"type": "object"})")};
  server::ToolCallReader reader(static_cast<server::ToolForm>(how % 3), {tool}, (how & 4) != 0);
  input.remove_prefix(1);
  std::size_t bytes = 0;
  const auto take = [&](const server::ToolCallReader::Found& found) {
    bytes += found.text.size();
    for (const server::ToolCall& call : found.calls) {
      expect(call.name == "look", "calls of tools that there are");
      expect(nlohmann::json::accept(call.arguments), "arguments in JSON");
    }
  };
  const std::size_t piece = 1 + how / 8, all = input.size();
  for (std::size_t at = 0; at < all; at += piece)
    take(reader.push(std::string(input.substr(at, piece)), at == 0 && (how & 4) != 0));
  take(reader.end());
  expect(bytes <= all, "no more text than was written");
}

}  // namespace canopy::fuzz
