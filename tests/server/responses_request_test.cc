#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/server/replies/api_error.h"
#include "src/server/request/completion_request.h"
#include "tests/server/api_kit.h"

namespace canopy::server {
namespace {

using Json = nlohmann::ordered_json;

const Defaults kDefaults{.sampling = {}, .edits = {}, .vocab = 300, .most_choices = 8};

CompletionRequest read(const std::string& members, const StoredResponses& stored) {
  return read_responses_request(parse_ordered_json("{" + members + "}", LargeIntegers::kKept),
                                kDefaults, stored);
}
CompletionRequest read(const std::string& members) { return read(members, StoredResponses()); }

/// The messages that a template is given of these.
std::string turns(const std::string& members) {
  return exact_json_text(read(members).conversation.messages);
}

const std::string kInput = R"("input": "hi")";

TEST(ResponsesRequest, HasTheMessagesOfAChat) {
  EXPECT_EQ(turns(kInput), R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(turns(R"("instructions": "be kind", )" + kInput),
            R"([{"role":"system","content":"be kind"},{"role":"user","content":"hi"}])");
  EXPECT_EQ(turns(R"("instructions": "a", "input": [
                       {"role": "developer", "content": "b"},
                       {"type": "message", "role": "user", "id": "m", "status": "completed",
                        "content": [{"type": "input_text", "text": "c"},
                                    {"type": "input_text", "text": "d"}]},
                       {"role": "user", "content": "e"},
                       {"role": "assistant", "phase": null, "content": [
                         {"type": "output_text", "text": "f", "annotations": [], "logprobs": []}]},
                       {"role": "system", "content": ""}])"),
            R"([{"role":"system","content":"a\nb"},{"role":"user","content":"cd"},)"
            R"({"role":"user","content":"e"},{"role":"assistant","content":"f"},)"
            R"({"role":"system","content":""}])");
}

const std::string kCalls = R"(
    {"role": "user", "content": "a"},
    {"type": "reasoning", "id": "r", "summary": [], "content": [
      {"type": "reasoning_text", "text": "why"}]},
    {"type": "message", "role": "assistant", "content": "b"},
    {"type": "function_call", "id": "x", "call_id": "c1", "name": "f", "status": "completed",
     "arguments": "{\"n\": 12345678901234567890123}"},
    {"type": "function_call", "call_id": "c2", "name": "g", "arguments": ""},
    {"type": "function_call_output", "call_id": "c2", "output": [
      {"type": "input_text", "text": "no"}]},
    {"type": "function_call_output", "call_id": "c1", "output": "4"},
    {"type": "function_call", "call_id": "c3", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c3", "output": ""})";
const std::string kCallsRead =
    R"([{"role":"user","content":"a"},)"
    R"({"role":"assistant","content":"b","reasoning_content":"why","tool_calls":[)"
    R"({"id":"c1","type":"function","function":{"name":"f","arguments":{"n":12345678901234567890123}}},)"
    R"({"id":"c2","type":"function","function":{"name":"g","arguments":{}}}]},)"
    R"({"role":"tool","tool_call_id":"c2","name":"g","content":"no"},)"
    R"({"role":"tool","tool_call_id":"c1","name":"f","content":"4"},)"
    R"({"role":"assistant","content":null,"tool_calls":[)"
    R"({"id":"c3","type":"function","function":{"name":"f","arguments":{}}}]},)"
    R"({"role":"tool","tool_call_id":"c3","name":"f","content":""})";

TEST(ResponsesRequest, HasTheCallsAndTheReasoningOfEarlierItems) {
  std::string members = R"("input": [)";
  members += kCalls;
  EXPECT_EQ(turns(members + "]"), kCallsRead + "]");
}

TEST(ResponsesRequest, ReadsReasoningThatWasSealedHere) {
  const auto asked = [](const std::string& reasoning) {
    return read(R"("input": [{"role": "user", "content": "a"}, {"type": "reasoning", )" +
                reasoning + R"(}, {"role": "assistant", "content": "b"}])");
  };
  const CompletionRequest sealed = asked(R"("summary": [], "encrypted_content": "canopy:why")");
  EXPECT_EQ(sealed.conversation.messages[1]["reasoning_content"], "why");
  EXPECT_TRUE(sealed.warnings.empty());
  for (const char* foreign : {R"("encrypted_content": "gAAA", "summary": [])",
                              R"("summary": [{"type": "summary_text", "text": "short"}])"}) {
    const CompletionRequest request = asked(foreign);
    EXPECT_EQ(exact_json_text(request.conversation.messages),
              R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
    EXPECT_EQ(request.warnings.size(), 1u);
  }
  EXPECT_TRUE(asked(R"("summary": [])").warnings.empty());
}

TEST(ResponsesRequest, GoesOnFromAStoredResponse) {
  StoredResponses stored;
  std::string items = "[";
  items += kCalls;
  stored.add("resp_1", {"{}", items + "]"});
  const CompletionRequest request = read(
      R"("instructions": "new", "previous_response_id": "resp_1", "input": [
           {"type": "function_call_output", "call_id": "c3", "output": "again"},
           {"role": "user", "content": "more"}])",
      stored);
  EXPECT_EQ(exact_json_text(request.conversation.messages),
            R"([{"role":"system","content":"new"},)" + kCallsRead.substr(1) +
                R"(,{"role":"tool","tool_call_id":"c3","name":"f","content":"again"},)"
                R"({"role":"user","content":"more"}])");
  EXPECT_EQ(request.response->items.size(), 11u);
  EXPECT_EQ(request.response->items[10], Json::parse(R"({"role": "user", "content": "more"})"));
  EXPECT_EQ(request.response->repeated["previous_response_id"], "resp_1");
  try {
    read(R"("previous_response_id": "resp_2", "input": "a")", stored);
    FAIL();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, "previous_response_id");
    EXPECT_EQ(error.body()["error"]["code"], "previous_response_not_found");
    EXPECT_NE(error.message.find("1024 responses"), std::string::npos);
  }
}

const std::string kFunctions = R"(, "tools": [
    {"type": "function", "name": "f", "description": "d", "strict": true,
     "parameters": {"type": "object", "properties": {}}},
    {"type": "function", "name": "g", "parameters": null}])";

TEST(ResponsesRequest, OffersToolsAsTemplatesTakeThem) {
  const CompletionRequest request = read(kInput + kFunctions);
  EXPECT_EQ(request.conversation.tools.dump(),
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":)"
            R"({"type":"object","properties":{}}}},{"type":"function","function":{"name":"g"}}])");
  EXPECT_EQ(request.tools.size(), 2u);
  EXPECT_FALSE(request.must_call || request.one_call);
  EXPECT_EQ(request.response->repeated["tools"][0]["strict"], true);
  EXPECT_EQ(request.response->repeated["tool_choice"], "auto");
  EXPECT_EQ(request.response->repeated["parallel_tool_calls"], true);
}

TEST(ResponsesRequest, ChoosesAmongTools) {
  const auto choose = [](const std::string& choice) {
    return read(kInput + kFunctions + R"(, "tool_choice": )" + choice);
  };
  EXPECT_FALSE(choose(R"("auto")").must_call);
  EXPECT_TRUE(choose(R"("required")").must_call);
  EXPECT_EQ(choose(R"("required")").tools.size(), 2u);
  const CompletionRequest one = choose(R"({"type": "function", "name": "g"})");
  ASSERT_EQ(one.tools.size(), 1u);
  EXPECT_EQ(one.tools[0].name, "g");
  EXPECT_TRUE(one.must_call);
  const CompletionRequest none = choose(R"("none")");
  EXPECT_TRUE(none.tools.empty() && none.conversation.tools.is_null() && !none.must_call);
  EXPECT_TRUE(read(kInput + kFunctions + R"(, "parallel_tool_calls": false)").one_call);
}

TEST(ResponsesRequest, TakesSchemasReasoningAndLengths) {
  const auto format = [](const std::string& of) {
    return read(kInput + R"(, "text": {"format": )" + of + "}");
  };
  const CompletionRequest schema = format(
      R"({"type": "json_schema", "name": "n", "strict": true, "schema": {"type": "integer"}})");
  EXPECT_EQ(schema.schema->dump(), R"({"type":"integer"})");
  EXPECT_STREQ(schema.schema_member, "text.format.schema");
  EXPECT_EQ(schema.response->repeated["text"]["format"]["name"], "n");
  EXPECT_EQ(format(R"({"type": "json_object"})").schema->dump(), R"({"type":"object"})");
  EXPECT_FALSE(format(R"({"type": "text"})").schema);
  const auto variables = [](const std::string& more) {
    return read(kInput + more).conversation.variables.dump();
  };
  EXPECT_EQ(variables(""), "null");
  EXPECT_EQ(variables(R"(, "reasoning": {"effort": "low"})"), R"({"reasoning_effort":"low"})");
  EXPECT_EQ(variables(R"(, "reasoning": {"effort": "none"}, "chat_template_kwargs": {"a": 1})"),
            R"({"a":1,"enable_thinking":false,"thinking":false})");
  const CompletionRequest request = read(kInput + R"(, "max_output_tokens": 7, "top_p": 0.5,
      "temperature": 0.25, "store": false, "include": ["reasoning.encrypted_content"],
      "metadata": {"a": "b"})");
  EXPECT_EQ(request.most_tokens, 7);
  EXPECT_EQ(request.sampling.temperature, 0.25f);
  EXPECT_FALSE(request.response->stored);
  EXPECT_TRUE(request.response->seals_reasoning);
  EXPECT_EQ(request.response->repeated["metadata"], Json::parse(R"({"a": "b"})"));
  EXPECT_EQ(request.response->repeated["temperature"], 0.25);
  EXPECT_TRUE(read(kInput).response->stored);
}

TEST(ResponsesRequest, TakesWhatClientsSendAndNamesWhatIsNotFollowed) {
  const CompletionRequest request = read(
      kInput + R"(, "model": "m", "stream": true, "stream_options": {"include_obfuscation": false},
        "user": "u", "safety_identifier": "s", "prompt_cache_key": "k", "truncation": "disabled",
        "prompt_cache_retention": "24h", "service_tier": "auto", "background": false,
        "max_tool_calls": 3, "top_logprobs": 0, "include": ["web_search_call.results"],
        "conversation": null, "prompt": null, "resume": true)");
  EXPECT_EQ(request.model, "m");
  EXPECT_TRUE(request.stream && request.resume);
  EXPECT_TRUE(request.warnings.empty());
  for (const char* hint :
       {R"("truncation": "auto")", R"("service_tier": "flex")", R"("text": {"verbosity": "low"})",
        R"("reasoning": {"summary": "auto"})", R"("context_management": [])",
        R"("tools": [{"type": "function", "name": "f", "defer_loading": true}])"})
    EXPECT_EQ(read(kInput + ", " + hint).warnings.size(), 1u) << hint;
}

TEST(ResponsesRequest, RefusesByTheName) {
  const auto refused = [](const std::string& members, const std::string& name) {
    return testing::refusal_of([](const std::string& of) { return read(of); }, members, name);
  };
  const auto item = [](const std::string& members) { return R"("input": [{)" + members + "}]"; };
  refused(R"("model": "m")", "input");
  refused(R"("input": [])", "input");
  refused(R"("input": 3)", "input");
  refused(R"("input": ["hi"])", "input[0]");
  refused(item(""), "input[0].type");
  refused(item(R"("type": "message")"), "input[0].role");
  refused(item(R"("role": "tool", "content": "a")"), "input[0].role");
  refused(item(R"("role": "user")"), "input[0].content");
  refused(item(R"("role": "user", "content": 3)"), "input[0].content");
  refused(item(R"("role": "user", "content": "a", "name": "b")"), "input[0].name");
  const std::string part = "input[0].content[0]";
  const auto content = [&](const std::string& of) {
    return item(R"("role": "user", "content": [)" + of + "]");
  };
  refused(content("3"), part);
  refused(content("{}"), part + ".type");
  refused(content(R"({"type": "input_text"})"), part + ".text");
  EXPECT_NE(refused(content(R"({"type": "input_image", "image_url": "x"})"), part + ".type")
                .find("'input_image'"),
            std::string::npos);
  refused(item(R"("type": "function_call", "name": "f", "arguments": "{}")"), "input[0].call_id");
  refused(item(R"("type": "function_call", "call_id": "c", "name": "f", "arguments": "{")"),
          "input[0].arguments");
  refused(item(R"("type": "function_call_output", "call_id": "c", "output": "a")"),
          "input[0].call_id");
  for (const char* type : {"web_search_call", "computer_call", "item_reference", "custom_tool_call",
                           "local_shell_call", "mcp_call"})
    EXPECT_NE(refused(item(R"("type": ")" + std::string(type) + "\""), "input[0].type").find(type),
              std::string::npos);
  for (const char* type :
       {"web_search", "web_search_preview", "file_search", "code_interpreter",
        "computer_use_preview", "image_generation", "mcp", "custom", "local_shell"})
    EXPECT_NE(refused(kInput + R"(, "tools": [{"type": ")" + type + R"(", "name": "a"}])",
                      "tools[0].type")
                  .find("'" + std::string(type) + "'"),
              std::string::npos);
  for (const auto& [more, name] : std::vector<std::pair<std::string, std::string>>{
           {R"("instructions": ["a"])", "instructions"},
           {R"("tools": {})", "tools"},
           {R"("tools": [{"type": "function", "name": "a b"}])", "tools[0].name"},
           {R"("tools": [{"type": "function", "name": "a", "x": 1}])", "tools[0].x"},
           {R"("tools": [{"type": "function", "function": {"name": "a"}}])", "tools[0].name"},
           {R"("tool_choice": "maybe")", "tool_choice"},
           {R"("tool_choice": "required")", "tool_choice"},
           {R"("tool_choice": {"type": "allowed_tools"})", "tool_choice.type"},
           {R"("tool_choice": {"type": "web_search"})", "tool_choice.type"},
           {R"("text": {"format": {"type": "xml"}})", "text.format.type"},
           {R"("text": {"format": {"type": "json_schema"}})", "text.format.schema"},
           {R"("text": {"x": 1})", "text.x"},
           {R"("reasoning": {"x": 1})", "reasoning.x"},
           {R"("include": ["message.output_text.logprobs"])", "include"},
           {R"("include": [3])", "include"},
           {R"("top_logprobs": 2)", "top_logprobs"},
           {R"("background": true)", "background"},
           {R"("conversation": "c")", "conversation"},
           {R"("prompt": {"id": "p"})", "prompt"},
           {R"("truncation": "maybe")", "truncation"},
           {R"("max_output_tokens": 0)", "max_output_tokens"},
           {R"("max_tokens": 3)", "max_tokens"},
           {R"("messages": [])", "messages"},
           {R"("stop": "a")", "stop"},
           {R"("n": 2)", "n"},
           {R"("temperature": "hot")", "temperature"},
           {R"("store": 1)", "store"},
           {R"("stream_options": {})", "stream_options"},
           {R"("resume": true)", "resume"}})
    refused(kInput + ", " + more, name);
}

}  // namespace
}  // namespace canopy::server
