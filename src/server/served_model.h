#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/chat/chat_template.h"
#include "src/chat/reasoning.h"
#include "src/server/metrics.h"
#include "src/server/request/completion_request.h"
#include "src/server/request_record.h"
#include "src/server/scheduler.h"
#include "src/server/tools.h"

namespace canopy::server {

struct ServiceOptions {
  std::string model_name;
  std::vector<std::string> aliases;  // more names for it; a * in one is any text
  Defaults defaults;
  std::vector<std::string> keys;               // none: everybody may ask
  std::vector<std::string> origins;            // of pages that may ask; "*": any
  bool loopback = true;                        // only this machine can connect
  std::chrono::milliseconds ping{5000};        // between comments in a stream that is silent
  std::chrono::milliseconds data_ping{25000};  // between chunks: some clients count them alone
  int context = 0;
  std::optional<int> most_tokens;                        // of a text, whatever its client asks for
  std::optional<std::chrono::seconds> timeout;           // of a text, from its request on
  std::string build;                                     // the program's version
  std::function<void(const RequestRecord&)> on_request;  // any thread; may be none
};

/// A model that has been loaded, and all that answers are made with.
struct ServedModel {
  Engine& engine;
  Scheduler& scheduler;
  Metrics& metrics;
  std::optional<chat::ChatTemplate> chat_template;
  std::string why_no_chat;  // the reason, if there is no template
  std::optional<ToolForm> tool_form;
  std::optional<chat::ReasoningTags> reasoning;
  std::size_t longest_token = 1;  // in bytes

  const Tokenizer& tokenizer() const { return *engine.models().tokenizer; }
};

}  // namespace canopy::server
