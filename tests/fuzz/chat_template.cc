// A chat template, parsed, and rendered with a small conversation.
#include "src/base/utf8.h"
#include "src/jinja/template.h"
#include "tests/fuzz/fuzz.h"

namespace canopy::fuzz {

void fuzz_one(std::string_view input) {
  static const auto kVariables = nlohmann::ordered_json::parse(R"({
      "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true, "documents": null,
      "messages": [{"role": "system", "content": "Be \u00e9xact."}, {"role": "user", "content": "What is it?"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefghi", "type": "function",
          "function": {"name": "look", "arguments": {"at": [1, 2.5, null]}}}]},
        {"role": "tool", "name": "look", "content": "a\n b"}, {"role": "user", "content": [{"type": "text", "text": "x"}]}],
      "tools": [{"type": "function", "function": {"name": "look", "description": "d",
        "parameters": {"type": "object", "properties": {"at": {"type": "array"}}}}}]})");
  // A share of what is granted to users, so that an input takes less than a second.
  const jinja::Limits limits{.steps = 300'000, .output_bytes = 1 << 20, .memory_bytes = 8 << 20};
  try {
    const jinja::Template parsed(input);
    const std::string text = parsed.render(kVariables, std::tm{}, limits);
    expect(text.size() <= limits.output_bytes, "a text as long as is allowed");
    expect(is_utf8(text), "a text in UTF-8");
  } catch (const jinja::TemplateError& error) {  // whose message may be the template's own words
    expect(is_utf8(error.what()), "a message in UTF-8");
    expect(error.line() >= 1 && error.column() >= 1, "a place in the template");
  }
}

}  // namespace canopy::fuzz
