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

CompletionRequest read(const std::string& members, AnthropicAsk ask = AnthropicAsk::kText) {
  return read_anthropic_request(
      parse_ordered_json("{\"max_tokens\": 9, " + members + "}", LargeIntegers::kKept), kDefaults,
      ask);
}

/// The messages that a template is given of these.
std::string turns(const std::string& members) {
  return exact_json_text(read(members).conversation.messages);
}

const std::string kUser = R"("messages": [{"role": "user", "content": "hi"}])";

TEST(AnthropicRequest, HasTheMessagesOfAChat) {
  EXPECT_EQ(turns(kUser), R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(turns(R"("system": "be kind", )" + kUser),
            R"([{"role":"system","content":"be kind"},{"role":"user","content":"hi"}])");
  EXPECT_EQ(
      turns(R"("system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
                          {"type": "text", "text": "b"}], )" +
            kUser),
      R"([{"role":"system","content":"a\nb"},{"role":"user","content":"hi"}])");
  EXPECT_EQ(turns(R"("system": "", )" + kUser), R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(turns(R"("messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
                       {"type": "text", "text": "b"}]}, {"role": "user", "content": "c"}])"),
            R"([{"role":"user","content":"a\nb\nc"}])");
  EXPECT_EQ(turns(R"("messages": [{"role": "user", "content": "a"},
                       {"role": "assistant", "content": "b"}, {"role": "system", "content": "c"},
                       {"role": "user", "content": []}])"),
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
            R"({"role":"system","content":"c"},{"role":"user","content":""}])");
}

TEST(AnthropicRequest, HasTheCallsAndTheReasoningOfEarlierTurns) {
  EXPECT_EQ(
      turns(R"("messages": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [
          {"type": "thinking", "thinking": "why", "signature": "x"},
          {"type": "text", "text": "b", "citations": null},
          {"type": "tool_use", "id": "t1", "name": "f", "input": {"n": 12345678901234567890123}},
          {"type": "tool_use", "id": "t2", "name": "g", "input": {}, "caller": {"type": "direct"}}]},
        {"role": "user", "content": [
          {"type": "tool_result", "tool_use_id": "t2", "is_error": true,
           "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "file"}]},
          {"type": "tool_result", "tool_use_id": "t1", "content": "4", "is_error": false},
          {"type": "text", "text": "go on"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t3", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t3"}]}])"),
      R"([{"role":"user","content":"a"},)"
      R"({"role":"assistant","content":"b","reasoning_content":"why","tool_calls":[)"
      R"({"id":"t1","type":"function","function":{"name":"f","arguments":{"n":12345678901234567890123}}},)"
      R"({"id":"t2","type":"function","function":{"name":"g","arguments":{}}}]},)"
      R"({"role":"tool","tool_call_id":"t2","name":"g","content":"Error: no\nfile"},)"
      R"({"role":"tool","tool_call_id":"t1","name":"f","content":"4"},)"
      R"({"role":"user","content":"go on"},)"
      R"({"role":"assistant","content":null,"tool_calls":[)"
      R"({"id":"t3","type":"function","function":{"name":"f","arguments":{}}}]},)"
      R"({"role":"tool","tool_call_id":"t3","name":"f","content":""}])");
}

TEST(AnthropicRequest, JoinsTurnsOfOneRole) {
  EXPECT_EQ(turns(R"("messages": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "w", "signature": ""},
                                          {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": ""},
          {"type": "text", "text": "c"}, {"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "d"}]}])"),
            R"([{"role":"user","content":"a"},)"
            R"({"role":"assistant","content":"b\nc","reasoning_content":"w\nx","tool_calls":[)"
            R"({"id":"1","type":"function","function":{"name":"f","arguments":{}}}]},)"
            R"({"role":"tool","tool_call_id":"1","name":"f","content":"d"}])");
}

TEST(AnthropicRequest, SwitchesReasoningOfTemplates) {
  const auto variables = [](const std::string& more) {
    return read(kUser + more).conversation.variables.dump();
  };
  const std::string off = R"({"enable_thinking":false,"thinking":false})";
  EXPECT_EQ(variables(""), off);
  EXPECT_EQ(variables(R"(, "thinking": {"type": "disabled"})"), off);
  EXPECT_EQ(read(kUser).reasoning, ReasoningFormat::kLeftOut);
  for (const char* type : {"enabled", "adaptive"}) {
    const std::string on = R"(, "thinking": {"type": ")" + std::string(type) + "\"";
    EXPECT_EQ(variables(on + "}"), R"({"enable_thinking":true,"thinking":true})");
    EXPECT_EQ(read(kUser + on + "}").reasoning, ReasoningFormat::kSeparate);
    EXPECT_EQ(read(kUser + on + R"(, "display": "summarized"})").reasoning,
              ReasoningFormat::kSeparate);
    EXPECT_EQ(read(kUser + on + R"(, "display": "omitted"})").reasoning, ReasoningFormat::kLeftOut);
    EXPECT_EQ(read(kUser + on + R"(, "budget_tokens": 1024})").warnings.size(), 1u);
  }
  EXPECT_EQ(variables(R"(, "output_config": {"effort": "low"})"),
            R"({"enable_thinking":false,"thinking":false,"reasoning_effort":"low"})");
}

const std::string kTools = R"(, "tools": [
    {"name": "f", "description": "d", "input_schema": {"type": "object"}, "cache_control": {}},
    {"name": "g", "type": "custom", "input_schema": {"type": "object"}, "strict": true}])";

TEST(AnthropicRequest, OffersToolsAsTemplatesTakeThem) {
  const CompletionRequest request = read(kUser + kTools);
  EXPECT_EQ(request.conversation.tools.dump(),
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":)"
            R"({"type":"object"}}},)"
            R"({"type":"function","function":{"name":"g","parameters":{"type":"object"}}}])");
  EXPECT_EQ(request.tools.size(), 2u);
  EXPECT_FALSE(request.must_call || request.one_call);
  EXPECT_TRUE(request.warnings.empty());
}

TEST(AnthropicRequest, ChoosesAmongTools) {
  const auto choose = [](const std::string& choice) {
    return read(kUser + kTools + R"(, "tool_choice": )" + choice);
  };
  EXPECT_FALSE(choose(R"({"type": "auto"})").must_call);
  EXPECT_TRUE(choose(R"({"type": "auto", "disable_parallel_tool_use": true})").one_call);
  EXPECT_TRUE(choose(R"({"type": "any"})").must_call);
  EXPECT_EQ(choose(R"({"type": "any"})").tools.size(), 2u);
  const CompletionRequest one = choose(R"({"type": "tool", "name": "g"})");
  ASSERT_EQ(one.tools.size(), 1u);
  EXPECT_EQ(one.tools[0].name, "g");
  EXPECT_TRUE(one.must_call);
  const CompletionRequest none = choose(R"({"type": "none"})");
  EXPECT_TRUE(none.tools.empty() && none.conversation.tools.is_null() && !none.must_call);
}

TEST(AnthropicRequest, TakesWhatClientsSendAndNamesWhatIsNotFollowed) {
  const CompletionRequest request =
      read(kUser + R"(, "model": "claude-x", "stop_sequences": ["a", "b"], "temperature": 0.5,
        "top_p": 0.9, "top_k": 5, "stream": true, "metadata": {"user_id": "u"},
        "service_tier": "auto", "cache_control": {"type": "ephemeral"}, "container": null,
        "mcp_servers": [], "speed": "standard", "inference_geo": null)");
  EXPECT_EQ(request.model, "claude-x");
  EXPECT_EQ(request.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_EQ(request.most_tokens, 9);
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.warnings.empty());
  for (const char* hint :
       {R"("context_management": {"edits": []})", R"("inference_geo": "eu")", R"("speed": "fast")",
        R"("tools": [{"name": "f", "input_schema": {}, "input_examples": [{}]}])",
        R"("tools": [{"name": "f", "input_schema": {}, "defer_loading": true}])"})
    EXPECT_EQ(read(kUser + ", " + hint).warnings.size(), 1u) << hint;
  EXPECT_EQ(read(R"("messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]},
      {"role": "user", "content": "b"}])")
                .warnings.size(),
            1u);
  const CompletionRequest schema =
      read(kUser + R"(, "output_config": {"format": {"type": "json_schema", "schema": {"a": 1}}})");
  EXPECT_EQ(schema.schema->dump(), R"({"a":1})");
}

TEST(AnthropicRequest, NeedsItsLengthForATextAlone) {
  const Json body = Json::parse("{" + kUser + "}");
  EXPECT_NO_THROW(read_anthropic_request(body, kDefaults, AnthropicAsk::kCount));
  EXPECT_THROW(read_anthropic_request(body, kDefaults, AnthropicAsk::kText), ApiError);
}

TEST(AnthropicRequest, RefusesByTheName) {
  const auto refused = [](const std::string& members, const std::string& name) {
    return testing::refusal_of([](const std::string& of) { return read(of); }, members, name);
  };
  const auto user = [](const std::string& content) {
    return R"("messages": [{"role": "user", "content": )" + content + "}]";
  };
  const auto block = [&](const std::string& members) { return user("[{" + members + "}]"); };
  const std::string at = "messages[0].content[0]";
  refused(R"("model": "m")", "messages");
  refused(R"("messages": [])", "messages");
  refused(R"("messages": "hi")", "messages");
  refused(R"("messages": ["hi"])", "messages[0]");
  refused(R"("messages": [{"content": "a"}])", "messages[0].role");
  refused(R"("messages": [{"role": "tool", "content": "a"}])", "messages[0].role");
  refused(R"("messages": [{"role": "user"}])", "messages[0].content");
  refused(R"("messages": [{"role": "user", "content": "a", "name": "b"}])", "messages[0].name");
  refused(user("3"), "messages[0].content");
  refused(user("[3]"), at);
  refused(block(""), at + ".type");
  refused(block(R"("type": "text")"), at + ".text");
  refused(block(R"("type": "text", "text": "a", "x": 1)"), at + ".x");
  EXPECT_NE(refused(block(R"("type": "image", "source": {})"), at + ".type").find("'image'"),
            std::string::npos);
  refused(block(R"("type": "document", "source": {})"), at + ".type");
  refused(block(R"("type": "tool_use", "id": "1", "name": "f", "input": {})"), at + ".type");
  refused(block(R"("type": "tool_result", "tool_use_id": "1")"), at + ".tool_use_id");
  const std::string called = R"("messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": )";
  EXPECT_NE(refused(called + R"([{"type": "image"}]}]}])", "messages[2].content[0].content[0].type")
                .find("'image'"),
            std::string::npos);
  refused(R"("messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [
      {"type": "tool_use", "id": "1", "name": "f", "input": "{}"}]}])",
          "messages[1].content[0].input");
  refused(
      R"("messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])",
      "messages");
  refused(R"("system": 3, )" + kUser, "system");
  refused(R"("system": [{"type": "image"}], )" + kUser, "system[0].type");
  for (const auto& [more, name] : std::vector<std::pair<std::string, std::string>>{
           {R"("tools": {})", "tools"},
           {R"("tools": [{"type": "web_search_20250305", "name": "w"}])", "tools[0].type"},
           {R"("tools": [{"name": "a b", "input_schema": {}}])", "tools[0].name"},
           {R"("tools": [{"name": "a"}])", "tools[0].input_schema"},
           {R"("tools": [{"name": "a", "input_schema": {}, "x": 1}])", "tools[0].x"},
           {R"("tool_choice": "auto")", "tool_choice"},
           {R"("tool_choice": {"type": "maybe"})", "tool_choice.type"},
           {R"("tool_choice": {"type": "any"})", "tool_choice"},
           {R"("tools": [{"name": "a", "input_schema": {}}], "tool_choice": {"type": "tool",
              "name": "b"})",
            "tool_choice"},
           {R"("thinking": {"type": "maybe"})", "thinking.type"},
           {R"("thinking": {"type": "enabled", "budget_tokens": 0})", "thinking.budget_tokens"},
           {R"("thinking": {"type": "enabled", "display": "all"})", "thinking.display"},
           {R"("output_config": {"format": {"type": "xml"}})", "output_config.format.type"},
           {R"("output_config": {"format": {"type": "json_schema"}})",
            "output_config.format.schema"},
           {R"("output_config": {"x": 1})", "output_config.x"},
           {R"("service_tier": "priority")", "service_tier"},
           {R"("mcp_servers": [{}])", "mcp_servers"},
           {R"("container": "c")", "container"},
           {R"("stop_sequences": 3)", "stop_sequences"},
           {R"("stop_sequences": [""])", "stop_sequences"},
           {R"("stop": "a")", "stop"},
           {R"("n": 2)", "n"},
           {R"("temperature": "hot")", "temperature"},
           {R"("stream": 1)", "stream"},
           {R"("resume": true)", "resume"}})
    refused(kUser + ", " + more, name);
}

}  // namespace
}  // namespace canopy::server
