#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/server/request/completion_request.h"
#include "src/server/request/fields.h"

namespace canopy::server {

// Members of a chat request. Each throws ApiError 400 naming the one that is wrong.

void read_messages(Fields& fields, CompletionRequest& request);
/// `response_format`.
void read_format(Fields& fields, CompletionRequest& request);
/// `tools` and what is said of them, after the messages and the format.
void read_tools(Fields& fields, CompletionRequest& request);

/// `chat_template_kwargs`.
void read_variables(Fields& fields, CompletionRequest& request);

/// The arguments of a call in the history, as templates take them: an object. Clients send them as
/// JSON in a string; for a function without parameters as "", null or nothing. `place`: where they
/// stand. Throws ApiError 400.
nlohmann::ordered_json call_arguments(nlohmann::ordered_json given, const std::string& place);

/// Tools that a request offers, and its choice among them.
struct ToolOffer {
  enum class Choice : std::uint8_t { kAuto, kNone, kAny, kOne };
  std::vector<Tool> tools;
  nlohmann::ordered_json described;  // as templates take them
  Choice choice = Choice::kAuto;
  std::string one;  // its name
};
/// Letters, digits, underscores, dashes and dots, `longest` of them at most.
bool is_tool_name(const std::string& name, std::size_t longest);
/// Refuses more tools than a request may offer.
void check_tool_count(const Fields& fields, const nlohmann::ordered_json& tools);
/// Adds an offer to a request whose format has been read.
void offer_tools(const Fields& fields, ToolOffer offer, CompletionRequest& request);

}  // namespace canopy::server
