#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/chat/chat_template.h"
#include "src/grammar/grammar.h"
#include "src/server/call_scanner.h"
#include "src/text/tokenizer.h"

namespace canopy::server {

/// Forms in which a model writes that it calls a tool. Known from what its template makes of such a
/// message.
enum class ToolForm : std::uint8_t {
  kHermes,   // <tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>
  kLlama,    // {"name": ..., "parameters": {...}}
  kMistral,  // the token [TOOL_CALLS], then [{"name": ..., "arguments": {...}}]
};
/// Nothing where the template writes calls in another form, or none.
std::optional<ToolForm> find_tool_form(const chat::ChatTemplate& chat_template);

/// Text of the token that Mistral's calls begin with.
inline constexpr const char* kMistralCalls = "[TOOL_CALLS]";

/// A tool that a client offers.
struct Tool {
  std::string name;
  nlohmann::ordered_json parameters;  // a schema
};

/// One call of one of these tools, as the form has it. Throws Error naming the schema's keyword.
grammar::Grammar call_grammar(ToolForm form, const std::vector<Tool>& tools);

/// Times at which a call is reported. What turns out to be no call is text, unless a part of it was
/// reported.
enum class TellCalls : std::uint8_t {
  kWhole,     // each when it is whole
  kAsWritten  // its name, and then its arguments as they come, be they JSON in the end or not
};

/// A reader that separates calls from text, piece by piece. What may be a call is held back until
/// it is known. One thread.
class ToolCallReader {
 public:
  /// `begun`: the answer is a call from its first token on, of the form's grammar. It is reported
  /// as it is written, and no part of it is text.
  ToolCallReader(ToolForm form, const std::vector<Tool>& tools, bool begun, TellCalls tell);

  struct Found {
    std::string text;
    std::vector<ToolCall> calls;  // or pieces of them
  };
  /// `calls_begin`: the token that Mistral's calls begin with is there.
  Found push(const std::string& text, bool calls_begin);
  /// The answer is over: what was held back.
  Found end();

 private:
  Found read(const std::string& text, bool calls_begin);
  void read_hermes(Found& found);
  void follow(std::size_t end, Found& found);
  bool read_calls(const std::string& json, Found& found) const;
  std::optional<ToolCall> call_of(const nlohmann::ordered_json& call) const;
  void add_calls(std::vector<ToolCall> calls, Found& found) const;

  ToolForm form_;
  TellCalls tell_;
  bool forced_;
  std::vector<std::string> names_;  // of the tools
  std::string held_;
  std::size_t said_ = 0;      // bytes of text that were found
  CallScanner scanner_;       // of the call that is being written
  std::size_t followed_ = 0;  // bytes of `held_` that it has seen
  bool in_call_;
  bool called_ = false;  // once
  bool plain_ = false;   // of Llama's form: the answer does not begin as a call does
};

}  // namespace canopy::server
