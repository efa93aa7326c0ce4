#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/server/replies/reply_form.h"
#include "tests/server/api_kit.h"

namespace canopy::server {
namespace {

using Json = nlohmann::ordered_json;

const std::string kNow = R"(<tool_call>{"name": "now", "arguments": {}}</tool_call>)";
const std::string kAdd =
    R"(<tool_call>{"name": "add", "arguments": {"b": 12345678901234567890123, "a": "x"}}</tool_call>)";

Answer answer_of(bool stream) {
  const std::vector<Tool> tools{{"add", Json::object()}, {"now", Json::object()}};
  Answer answer;
  answer.head = {Api::kAnthropic, "msg_1", "tiny", 0};
  answer.request.stream = stream;
  answer.prompts = {{1, 2, 3, 4, 5}};
  answer.texts.resize(1);
  answer.calls.resize(1);
  answer.begun_calls.resize(1);
  answer.reasoners.emplace_back(chat::ReasoningTags{"<r>", "</r>"}, false);
  answer.readers.emplace_back(ToolForm::kHermes, tools, false,
                              stream ? TellCalls::kAsWritten : TellCalls::kWhole);
  return answer;
}

struct Ending {
  std::string reason = "stop", word;
};

/// The next piece of a text, of one token, as the job gives it; the last one with its ending.
JobUpdate piece_of(const std::string& text, std::size_t at, std::size_t cut, const Ending& ending) {
  JobUpdate update;
  JobUpdate::Choice& choice = update.choices.emplace_back();
  choice.text = text.substr(at, cut);
  choice.tokens = {7};
  if (at + cut < text.size()) return update;
  choice.finish_reason = ending.reason;
  choice.stopping_word = ending.word;
  choice.cached_tokens = 2;
  return update;
}

Json whole(const std::string& text, const Ending& ending = {}) {
  Answer answer = answer_of(/*stream=*/false);
  const auto form = anthropic_form(answer);
  return testing::whole_reply(answer, *form, text, [&](std::size_t at, std::size_t cut) {
    return piece_of(text, at, cut, ending);
  });
}

std::vector<Json> stream(const std::string& text, std::size_t cut, const Ending& ending = {}) {
  Answer answer = answer_of(/*stream=*/true);
  const auto form = anthropic_form(answer);
  return testing::streamed_reply(answer, *form, text, cut, [&](std::size_t at, std::size_t size) {
    return piece_of(text, at, size, ending);
  });
}

/// Joins a stream into its message, as clients do; fails where an event stands at a wrong place.
Json joined(const std::vector<Json>& events) {
  Json message;
  std::string input;
  bool open = false, stopped = false, over = false;
  for (const Json& event : events) {
    const std::string type = event["type"];
    EXPECT_FALSE(over) << event;
    EXPECT_EQ(message.is_null(), type == "message_start") << event;
    if (type == "message_start") {
      message = event["message"];
    } else if (type == "content_block_start") {
      EXPECT_FALSE(open || stopped);
      open = true;
      EXPECT_EQ(event["index"], message["content"].size());
      message["content"].push_back(event["content_block"]);
      input.clear();
    } else if (type == "content_block_delta") {
      EXPECT_TRUE(open);
      EXPECT_EQ(event["index"], message["content"].size() - 1);
      Json& block = message["content"].back();
      const Json& delta = event["delta"];
      if (delta["type"] == "input_json_delta") {
        EXPECT_EQ(block["type"], "tool_use");
        input += delta["partial_json"];
        continue;
      }
      const std::string member = std::next(delta.begin()).key() == "type"
                                     ? delta.begin().key()
                                     : std::next(delta.begin()).key();
      EXPECT_EQ(delta["type"], member + "_delta");
      block[member] = block[member].get<std::string>() + delta[member].get<std::string>();
    } else if (type == "content_block_stop") {
      EXPECT_TRUE(open);
      EXPECT_EQ(event["index"], message["content"].size() - 1);
      open = false;
      if (!input.empty())
        message["content"].back()["input"] = parse_ordered_json(input, LargeIntegers::kKept);
    } else if (type == "message_delta") {
      EXPECT_FALSE(open || stopped);
      stopped = true;
      message.update(event["delta"]);
      message.update({{"usage", event["usage"]}}, true);
    } else if (type == "message_stop") {
      EXPECT_TRUE(stopped);
      over = true;
    } else {
      EXPECT_EQ(type, "ping");
    }
  }
  EXPECT_TRUE(over);
  return message;
}

/// The same without what comes by chance: the ids of calls.
Json without_ids(Json message) {
  for (Json& block : message["content"]) block.erase("id");
  return message;
}

TEST(AnthropicForm, HasTheBlocksOfAnAnswerInTheirOrder) {
  const Json message = without_ids(whole("<r> why </r>one " + kNow + "\n" + kAdd + " two"));
  EXPECT_EQ(exact_json_text(message["content"]),
            R"([{"signature":"canopy","thinking":"why","type":"thinking"},)"
            R"({"text":"one","type":"text"},)"
            R"({"input":{},"name":"now","type":"tool_use"},)"
            R"({"input":{"b":12345678901234567890123,"a":"x"},"name":"add","type":"tool_use"},)"
            R"({"text":" two","type":"text"}])");
  EXPECT_EQ(message["stop_reason"], "tool_use");
  EXPECT_EQ(message["usage"], Json::parse(R"({"cache_creation_input_tokens": 0,
      "cache_read_input_tokens": 2, "input_tokens": 3, "output_tokens": 1})"));
}

TEST(AnthropicForm, HasTheSameBlocksInAStreamHoweverTheTextComes) {
  for (const std::string& text :
       {"<r> why </r>one " + kNow + "\n" + kAdd + " two", kAdd + kNow, std::string("plain text"),
        "a " + kNow, std::string("<r>no end"), "<r>b</r>" + kNow + "c" + kAdd + "d"}) {
    Json expected = without_ids(whole(text));
    expected["usage"].erase("output_tokens");
    for (std::size_t cut = 1; cut <= text.size(); ++cut) {
      Json message = without_ids(joined(stream(text, cut)));
      EXPECT_EQ(message["usage"]["output_tokens"], (text.size() + cut - 1) / cut);
      message["usage"].erase("output_tokens");
      EXPECT_EQ(exact_json_text(message), exact_json_text(expected)) << text << " by " << cut;
    }
  }
}

TEST(AnthropicForm, SaysWhyATextEnded) {
  const auto stop = [](const std::string& text, const Ending& ending) {
    const Json message = whole(text, ending), streamed = joined(stream(text, 3, ending));
    EXPECT_EQ(message["stop_reason"], streamed["stop_reason"]);
    EXPECT_EQ(message["stop_sequence"], streamed["stop_sequence"]);
    return std::pair{message["stop_reason"].get<std::string>(), message["stop_sequence"].dump()};
  };
  using Stop = std::pair<std::string, std::string>;
  EXPECT_EQ(stop("text", {"stop", ""}), (Stop{"end_turn", "null"}));
  EXPECT_EQ(stop("text", {"stop", "END"}), (Stop{"stop_sequence", "\"END\""}));
  EXPECT_EQ(stop("text", {"length", ""}), (Stop{"max_tokens", "null"}));
  EXPECT_EQ(stop(kNow, {"stop", ""}), (Stop{"tool_use", "null"}));
  EXPECT_EQ(stop(kNow + " a", {"length", ""}), (Stop{"max_tokens", "null"}));
}

TEST(AnthropicForm, KeepsArgumentsThatAreNoObjectInAWarning) {
  Answer answer = answer_of(/*stream=*/false);
  answer.calls.front() = {{"call_1", "add", R"({"a": )", 0}};
  const Json message = Json::parse(anthropic_form(answer)->whole());
  EXPECT_EQ(message["content"][0]["input"], Json::object());
  EXPECT_NE(message["warnings"][0].get<std::string>().find(R"({"a": )"), std::string::npos);
}

TEST(AnthropicForm, PingsAndFailsByEventsOfItsOwn) {
  const Answer answer = answer_of(/*stream=*/true);
  const auto form = anthropic_form(answer);
  EXPECT_EQ(form->idle(), "event: ping\ndata: {\"type\":\"ping\"}\n\n");
  const std::vector<Json> events = testing::events_of(form->error({503, "later"}));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["type"], "error");
  EXPECT_EQ(events[0]["error"], Json::parse(R"({"message": "later", "type": "overloaded_error"})"));
}

TEST(ApiError, HasTheTypesOfAnthropicsApi) {
  const auto type = [](int status) {
    return ApiError(status, "why").anthropic_body()["error"]["type"].get<std::string>();
  };
  EXPECT_EQ(type(400), "invalid_request_error");
  EXPECT_EQ(type(401), "authentication_error");
  EXPECT_EQ(type(403), "permission_error");
  EXPECT_EQ(type(404), "not_found_error");
  EXPECT_EQ(type(413), "request_too_large");
  EXPECT_EQ(type(429), "rate_limit_error");
  EXPECT_EQ(type(500), "api_error");
  EXPECT_EQ(type(503), "overloaded_error");
  EXPECT_EQ(ApiError(503, "why").anthropic_status(), 529);
}

}  // namespace
}  // namespace canopy::server
