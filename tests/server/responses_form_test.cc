#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/server/replies/reply_form.h"
#include "tests/server/api_kit.h"

namespace canopy::server::responses {  // names of other forms' tests stand next to these
namespace {

using Json = nlohmann::ordered_json;

const std::string kNow = R"(<tool_call>{"name": "now", "arguments": {}}</tool_call>)";
const std::string kAdd =
    R"(<tool_call>{"name": "add", "arguments": {"b": 12345678901234567890123, "a": "x"}}</tool_call>)";

Answer answer_of(bool stream) {
  const std::vector<Tool> tools{{"add", Json::object()}, {"now", Json::object()}};
  Answer answer;
  answer.head = {Api::kResponses, "resp_1f", "tiny", 9};
  answer.request.stream = stream;
  answer.request.response.emplace().repeated = {{"instructions", "be kind"}, {"store", true}};
  answer.prompts = {{1, 2, 3, 4, 5}};
  answer.texts.resize(1);
  answer.calls.resize(1);
  answer.begun_calls.resize(1);
  answer.reasoners.emplace_back(chat::ReasoningTags{"<r>", "</r>"}, false);
  answer.readers.emplace_back(ToolForm::kHermes, tools, false,
                              stream ? TellCalls::kAsWritten : TellCalls::kWhole);
  return answer;
}

/// The next piece of a text, of a token for each byte, as the job gives it; the last one with its
/// ending.
JobUpdate piece_of(const std::string& text, std::size_t at, std::size_t cut,
                   const std::string& reason) {
  JobUpdate update;
  JobUpdate::Choice& choice = update.choices.emplace_back();
  choice.text = text.substr(at, cut);
  choice.tokens.assign(choice.text.size(), 7);
  for (std::size_t i = 1; i <= choice.text.size(); ++i) choice.ends.push_back(i);
  if (at + cut < text.size()) return update;
  choice.finish_reason = reason;
  choice.cached_tokens = 2;
  return update;
}

Json whole(const std::string& text, const std::string& reason = "stop") {
  Answer answer = answer_of(/*stream=*/false);
  const auto form = responses_form(answer);
  return testing::whole_reply(answer, *form, text, [&](std::size_t at, std::size_t cut) {
    return piece_of(text, at, cut, reason);
  });
}

/// Expects that each event has the next number.
void expect_numbered(const std::vector<Json>& events) {
  for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["sequence_number"], i);
}

std::vector<Json> stream(const std::string& text, std::size_t cut,
                         const std::string& reason = "stop") {
  Answer answer = answer_of(/*stream=*/true);
  const auto form = responses_form(answer);
  std::vector<Json> events = testing::streamed_reply(
      answer, *form, text, cut,
      [&](std::size_t at, std::size_t size) { return piece_of(text, at, size, reason); });
  expect_numbered(events);
  return events;
}

/// The member that an item's text stands in.
std::string& text_in(Json& item) {
  Json& member = item["type"] == "function_call" ? item["arguments"] : item["content"][0]["text"];
  return member.get_ref<std::string&>();
}

/// Joins the events of a stream into its output, as clients do; fails where one stands at a wrong
/// place or says something else than those before it.
Json joined(const std::vector<Json>& events) {
  Json output = Json::array();
  bool open = false;
  EXPECT_EQ(events[0]["type"], "response.created");
  EXPECT_EQ(events[1]["type"], "response.in_progress");
  for (std::size_t i = 2; i + 1 < events.size(); ++i) {
    const Json& event = events[i];
    const std::string type = event["type"];
    const bool added = type == "response.output_item.added";
    EXPECT_NE(open, added) << event;
    if (added) {
      open = true;
      EXPECT_EQ(event["output_index"], output.size());
      EXPECT_EQ(event["item"]["status"], "in_progress");
      output.push_back(event["item"]);
      continue;
    }
    Json& item = output.back();
    EXPECT_EQ(event["output_index"], output.size() - 1);
    if (type == "response.output_item.done") {
      open = false;
      EXPECT_EQ(text_in(item), text_in(const_cast<Json&>(event["item"])));
      item = event["item"];
      continue;
    }
    EXPECT_EQ(event["item_id"], item["id"]);
    EXPECT_EQ(event.contains("content_index"), item["type"] != "function_call") << event;
    if (type == "response.content_part.added")
      item["content"].push_back(event["part"]);
    else if (type == "response.content_part.done")
      EXPECT_EQ(event["part"], item["content"][0]);
    else if (type.ends_with(".delta"))
      text_in(item) += event["delta"].get<std::string>();
    else if (type == "response.function_call_arguments.done")
      EXPECT_EQ(event["arguments"], item["arguments"]);
    else
      EXPECT_EQ(event["text"], text_in(item)) << event;
  }
  EXPECT_FALSE(open);
  return output;
}

/// The same without what comes by chance: the ids of calls.
Json without_call_ids(Json output) {
  for (Json& item : output) item.erase("call_id");
  return output;
}

TEST(ResponsesForm, HasTheItemsOfAnAnswerInTheirOrder) {
  const Json reply = whole("<r> why </r>one " + kNow + "\n" + kAdd + " two");
  EXPECT_EQ(exact_json_text(without_call_ids(reply["output"])),
            R"([{"id":"rs_1f_0","type":"reasoning","status":"completed","summary":[],)"
            R"("content":[{"type":"reasoning_text","text":"why"}]},)"
            R"({"id":"msg_1f_1","type":"message","status":"completed","role":"assistant",)"
            R"("content":[{"type":"output_text","text":"one","annotations":[],"logprobs":[]}]},)"
            R"({"id":"fc_1f_2","type":"function_call","status":"completed","name":"now",)"
            R"("arguments":"{}"},)"
            R"({"id":"fc_1f_3","type":"function_call","status":"completed","name":"add",)"
            R"("arguments":"{\"b\": 12345678901234567890123, \"a\": \"x\"}"},)"
            R"({"id":"msg_1f_4","type":"message","status":"completed","role":"assistant",)"
            R"("content":[{"type":"output_text","text":" two","annotations":[],"logprobs":[]}]}])");
  EXPECT_EQ(reply["status"], "completed");
  EXPECT_EQ(reply["object"], "response");
  EXPECT_EQ(reply["id"], "resp_1f");
  EXPECT_EQ(reply["created_at"], 9);
  EXPECT_EQ(reply["instructions"], "be kind");
  EXPECT_TRUE(reply["error"].is_null() && reply["incomplete_details"].is_null());
}

TEST(ResponsesForm, CountsTheTokensOfReasoningApart) {
  const std::string reasoned = "<r>why</r>";
  const auto usage = [](const Json& reply) { return reply["usage"].dump(); };
  const std::string expected =
      R"({"input_tokens":5,"input_tokens_details":{"cached_tokens":2,"cache_write_tokens":0},)"
      R"("output_tokens":13,"output_tokens_details":{"reasoning_tokens":10},"total_tokens":18})";
  EXPECT_EQ(usage(whole(reasoned + "one")), expected);
  for (std::size_t cut = 1; cut <= 13; ++cut)
    EXPECT_EQ(usage(stream(reasoned + "one", cut).back()["response"]), expected) << cut;
  const auto tokens = [](const std::string& text) {
    return whole(text)["usage"]["output_tokens_details"]["reasoning_tokens"].get<int>();
  };
  EXPECT_EQ(tokens("<ra plain text"), 0);  // that began as reasoning does
  EXPECT_EQ(tokens("<r>no end"), 9);
  EXPECT_EQ(tokens(reasoned + kNow), 10);  // calls are no reasoning
}

TEST(ResponsesForm, HasTheSameItemsInAStreamHoweverTheTextComes) {
  for (const std::string& text :
       {"<r> why </r>one " + kNow + "\n" + kAdd + " two", kAdd + kNow, std::string("plain text"),
        "a " + kNow, std::string("<r>no end"), "<r>b</r>" + kNow + "c" + kAdd + "d"})
    for (const char* reason : {"stop", "length"}) {
      const std::string expected = exact_json_text(without_call_ids(whole(text, reason)["output"]));
      for (std::size_t cut = 1; cut <= text.size(); ++cut) {
        const std::vector<Json> events = stream(text, cut, reason);
        const Json& last = events.back()["response"];
        EXPECT_EQ(exact_json_text(without_call_ids(joined(events))), expected)
            << text << " by " << cut;
        EXPECT_EQ(joined(events), last["output"]);
      }
    }
}

TEST(ResponsesForm, SaysWhetherATextWasCutOff) {
  const auto status = [](const std::string& text, const std::string& reason) {
    const Json reply = whole(text, reason), event = stream(text, 3, reason).back();
    EXPECT_EQ(event["type"], "response." + reply["status"].get<std::string>());
    EXPECT_EQ(event["response"]["incomplete_details"], reply["incomplete_details"]);
    return reply["status"].get<std::string>() + reply["incomplete_details"].dump() +
           reply["output"].back()["status"].get<std::string>();
  };
  const std::string whole_text = "completednullcompleted";
  const std::string cut_off = R"(incomplete{"reason":"max_output_tokens"}incomplete)";
  EXPECT_EQ(status("text", "stop"), whole_text);
  EXPECT_EQ(status(kNow, "stop"), whole_text);
  EXPECT_EQ(status("text", "length"), cut_off);
  EXPECT_EQ(status(kNow + " a", "length"), cut_off);
  EXPECT_EQ(whole("<r>b</r>text", "length")["output"][0]["status"], "completed");
}

TEST(ResponsesForm, SealsReasoningWhereThatIsAskedFor) {
  Answer answer = answer_of(/*stream=*/false);
  answer.request.response->seals_reasoning = true;
  const auto form = responses_form(answer);
  std::vector<std::vector<ToolCall>> calls;
  JobUpdate update = piece_of("<r>why</r>one", 0, 13, "stop");
  answer.take(update, calls);
  EXPECT_EQ(Json::parse(form->whole())["output"][0]["encrypted_content"], "canopy:why");
  EXPECT_FALSE(whole("<r>why</r>one")["output"][0].contains("encrypted_content"));
}

TEST(ResponsesForm, SaysWhatIsKnownAndFailsByEventsOfItsOwn) {
  Answer answer = answer_of(/*stream=*/true);
  answer.request.warnings = {"careful"};
  const auto form = responses_form(answer);
  std::string out = form->first();
  out += form->idle();
  out += form->error({503, "late"});
  const std::vector<Json> events = testing::events_of(out);
  expect_numbered(events);
  ASSERT_EQ(events.size(), 4u);
  for (const std::size_t i : {1u, 2u}) {
    EXPECT_EQ(events[i]["type"], "response.in_progress");
    EXPECT_EQ(nlohmann::json(events[i]["response"]), nlohmann::json(events[0]["response"]));
  }
  EXPECT_EQ(events[0]["response"]["warnings"][0], "careful");
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_EQ(events[3]["type"], "response.failed");
  EXPECT_EQ(events[3]["response"]["status"], "failed");
  EXPECT_EQ(events[3]["response"]["error"],
            Json::parse(R"({"code": "server_error", "message": "late"})"));
}

}  // namespace
}  // namespace canopy::server::responses
