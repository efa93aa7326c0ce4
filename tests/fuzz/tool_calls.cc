// A model's answer where it may call tools. The first byte gives the form of calls and the length
// of the pieces.
#include "src/server/tools.h"
#include "tests/fuzz/fuzz.h"

namespace canopy::fuzz {
namespace {

using server::TellCalls;
using server::ToolCall;

/// The calls of an answer that comes in pieces of `piece` bytes.
std::vector<ToolCall> calls_of(std::string_view answer, unsigned how, TellCalls tell) {
  const server::Tool tool{"look", nlohmann::ordered_json::parse(R"({"type": "object"})")};
  const bool begun = (how & 4) != 0;
  server::ToolCallReader reader(static_cast<server::ToolForm>(how % 3), {tool}, begun, tell);
  const std::size_t piece = 1 + how / 8;
  std::size_t bytes = 0;
  std::vector<ToolCall> calls;
  const auto take = [&](const server::ToolCallReader::Found& found) {
    bytes += found.text.size();
    for (const ToolCall& call : found.calls) {
      expect(call.name == "look" || (call.name.empty() && !calls.empty()), "a call of the tool");
      if (call.name.empty())
        calls.back().arguments += call.arguments;
      else
        calls.push_back(call);
    }
  };
  for (std::size_t at = 0; at < answer.size(); at += piece)
    take(reader.push(std::string(answer.substr(at, piece)), at == 0 && begun));
  take(reader.end());
  expect(bytes <= answer.size(), "no more text than was written");
  return calls;
}

}  // namespace

void fuzz_one(std::string_view input) {
  if (input.size() < 2) return;
  const auto how = static_cast<unsigned char>(input[0]);
  input.remove_prefix(1);
  const std::vector<ToolCall> whole = calls_of(input, how, TellCalls::kWhole);
  const std::vector<ToolCall> written = calls_of(input, how, TellCalls::kAsWritten);
  expect(written.size() >= whole.size(), "calls that are whole are told as they are written");
  const bool begun = (how & 4) != 0;  // reported as it is written, as a grammar has it
  for (const ToolCall& call : whole)
    expect(begun || nlohmann::json::accept(call.arguments), "arguments in JSON");
}

}  // namespace canopy::fuzz
