#include "src/server/tools.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "src/server/replies/answer.h"
#include "tests/error_of.h"
#include "tests/grammar/mask_checks.h"
#include "tests/temp_dir.h"

namespace canopy::server {
namespace {

using Json = nlohmann::ordered_json;

chat::ChatTemplate template_from(const std::string& file) {
  const TempDir dir;
  std::ofstream(dir / "tokenizer_config.json") << R"({"bos_token": "<s>", "eos_token": "</s>"})";
  return chat::ChatTemplate::load(dir.path(), {}, file);
}

std::optional<ToolForm> form_of_published(const std::string& name) {
  return find_tool_form(template_from(std::string(CANOPY_TEST_DATA) + "/chat_templates/templates/" +
                                      name + ".jinja"));
}

TEST(ToolForm, IsFoundByWhatATemplateMakesOfACall) {
  for (const char* name : {"Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B", "Qwen-QwQ-32B",
                           "ibm-granite-granite-4.0", "Bielik-11B-v3.0-Instruct"})
    EXPECT_EQ(form_of_published(name), ToolForm::kHermes) << name;
  EXPECT_EQ(form_of_published("mistralai-Mistral-Nemo-Instruct-2407"), ToolForm::kMistral);
  for (const char* name : {"axolotl-chatml", "Qwen3-Coder", "deepseek-ai-DeepSeek-V3.1",
                           "openai-gpt-oss-120b", "unsloth-mistral-Devstral-Small-2507"})
    EXPECT_FALSE(form_of_published(name).has_value()) << name;
  const TempDir dir;
  std::ofstream(dir / "llama.jinja")
      << "{% for m in messages %}{% if m.tool_calls %}{\"name\": \"{{ "
         "m.tool_calls[0].function.name "
         "}}\", \"parameters\": {{ m.tool_calls[0].function.arguments | tojson }}}{% else %}{{ "
         "m.content }}{% endif %}{% endfor %}";
  EXPECT_EQ(find_tool_form(template_from(dir / "llama.jinja")), ToolForm::kLlama);
}

const std::vector<Tool> kTools{{"add", Json{{"type", "object"}}},
                               {"now", Json{{"type", "object"}}}};

struct Read {
  std::string text;
  std::vector<std::string> calls;  // "name arguments"
};

/// Reads an answer that comes in pieces of `cut` bytes.
Read read(ToolForm form, const std::string& answer, std::size_t cut, bool begun = false,
          TellCalls tell = TellCalls::kWhole) {
  ToolCallReader reader(form, kTools, begun, tell);
  Read all;
  const auto add = [&](const ToolCallReader::Found& found) {
    all.text += found.text;
    for (const ToolCall& call : found.calls) {
      EXPECT_EQ(call.id.empty(), call.name.empty());
      if (call.name.empty()) {
        ASSERT_FALSE(all.calls.empty());
        EXPECT_TRUE(begun || tell == TellCalls::kAsWritten);
        all.calls.back() += call.arguments;
      } else {
        all.calls.push_back(call.name + " " + call.arguments);
      }
    }
  };
  for (std::size_t at = 0; at < answer.size(); at += cut)
    add(reader.push(answer.substr(at, cut), begun && form == ToolForm::kMistral));
  add(reader.end());
  return all;
}

void expect(ToolForm form, const std::string& answer, const std::string& text,
            const std::vector<std::string>& calls, bool begun = false) {
  for (const TellCalls tell : {TellCalls::kWhole, TellCalls::kAsWritten})
    for (std::size_t cut = 1; cut <= answer.size(); ++cut) {
      const Read all = read(form, answer, cut, begun, tell);
      EXPECT_EQ(all.text, text) << cut;
      EXPECT_EQ(all.calls, calls) << cut;
    }
}

/// The pieces of calls, one for each byte of an answer at most.
std::vector<std::string> pieces_of(ToolForm form, const std::string& answer) {
  ToolCallReader reader(form, kTools, true, TellCalls::kAsWritten);
  std::vector<std::string> pieces;
  for (const char c : answer)
    for (const ToolCall& call : reader.push(std::string(1, c), false).calls)
      pieces.push_back(call.name.empty() ? call.arguments : call.name + " " + call.arguments);
  EXPECT_EQ(reader.end().text, "");
  return pieces;
}

TEST(ToolCallReader, SaysHowMuchTextStandsBeforeACallHoweverItComes) {
  const std::string now = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
  const std::string answer = "one " + now + "\n" + now + " two\n\n" + now + "three";
  for (const TellCalls tell : {TellCalls::kWhole, TellCalls::kAsWritten})
    for (std::size_t cut = 1; cut <= answer.size(); ++cut) {
      ToolCallReader reader(ToolForm::kHermes, kTools, false, tell);
      std::string text;
      std::vector<std::string> before;
      const auto add = [&](const ToolCallReader::Found& found) {
        text += found.text;
        for (const ToolCall& call : found.calls)
          if (!call.name.empty()) before.push_back(text.substr(0, call.at));
      };
      for (std::size_t at = 0; at < answer.size(); at += cut)
        add(reader.push(answer.substr(at, cut), false));
      add(reader.end());
      EXPECT_EQ(before, (std::vector<std::string>{"one", "one", "one two"})) << cut;
      EXPECT_EQ(text, "one twothree") << cut;
    }
}

TEST(ToolCallReader, TellsHermesCallsFromText) {
  const std::string add =
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": [1, 2]}}\n</tool_call>";
  const std::string now = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
  expect(ToolForm::kHermes, add, "", {"add {\"a\": [1, 2]}"}, true);
  expect(ToolForm::kHermes, "Let me see.\n\n" + add + "\n" + now + "\n", "Let me see.",
         {"add {\"a\": [1, 2]}", "now {}"});
  expect(ToolForm::kHermes, "a < b <tool> x\n", "a < b <tool> x\n", {});
  const std::string unknown = "<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>";
  expect(ToolForm::kHermes, unknown, unknown, {});
  const std::string broken = "<tool_call>{\"name\": </tool_call> so";
  expect(ToolForm::kHermes, broken, broken, {});
  const std::string cut_off = "<tool_call>{\"name\": \"add\"";
  expect(ToolForm::kHermes, cut_off, cut_off, {});
}

TEST(ToolCallReader, TellsArgumentsAsTheyAreWritten) {
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(
      pieces_of(ToolForm::kLlama, R"({"name": "add", "parameters": {"a}": "\"}{"}} )"),
      (Pieces{"add {", "\"", "a", "}", "\"", ":", " ", "\"", "\\", "\"", "}", "{", "\"", "}"}));
  EXPECT_EQ(
      pieces_of(ToolForm::kHermes, R"(<tool_call>{"name": "now", "arguments": {}}</tool_call>)"),
      (Pieces{"now {", "}"}));
  // Pieces that were given stay, though the call comes to no end.
  EXPECT_EQ(pieces_of(ToolForm::kMistral,
                      R"([{"name": "now", "arguments": {}}, {"name": "add", "arguments": {"a)"),
            (Pieces{"now {", "}", "add {", "\"", "a"}));
}

TEST(ToolCallReader, TellsCallsOfAnotherOrderWhenTheyAreWhole) {
  expect(ToolForm::kLlama, R"({"parameters": {"a": 1}, "name": "add"})", "", {"add {\"a\":1}"});
  expect(ToolForm::kLlama, R"({"type": "function", "name": "now", "parameters": {}})", "",
         {"now {}"});
  const std::string both = R"({"name": "now", "x": {}, "arguments": {}, "parameters": {}})";
  expect(ToolForm::kLlama, both, both, {});
}

TEST(ToolCallReader, KeepsTheDigitsOfLargeIntegers) {
  expect(ToolForm::kLlama, R"({"parameters": {"a": -98765432109876543210}, "name": "add"})", "",
         {"add {\"a\":-98765432109876543210}"});
}

TEST(ToolCallReader, TellsLlamasCallsFromText) {
  expect(ToolForm::kLlama, "{\"name\": \"add\", \"parameters\": {\"a\": 1}}", "",
         {"add {\"a\": 1}"});
  expect(ToolForm::kLlama, " \n{\"name\": \"now\", \"parameters\": {}}", "", {"now {}"});
  expect(ToolForm::kLlama, "{\"a\": 1}", "{\"a\": 1}", {});
  expect(ToolForm::kLlama, "No {\"name\": \"now\"}", "No {\"name\": \"now\"}", {});
}

TEST(ToolCallReader, TellsMistralsCallsFromText) {
  const std::string both =
      " [{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"now\", \"arguments\": {}}]";
  expect(ToolForm::kMistral, both, "", {"add {\"a\": 1}", "now {}"}, true);
  expect(ToolForm::kMistral, both, both, {});  // without the token it is text
}

TEST(Answer, TellsOneCallWhereOneIsAskedForHoweverItComes) {
  const std::string add = R"(<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>)";
  for (const TellCalls tell : {TellCalls::kWhole, TellCalls::kAsWritten})
    for (const bool one : {false, true}) {
      Answer answer;
      answer.request.one_call = one;
      answer.texts.resize(1);
      answer.calls.resize(1);
      answer.begun_calls.resize(1);
      answer.readers.emplace_back(ToolForm::kHermes, std::vector<Tool>{{"add", Json::object()}},
                                  false, tell);
      std::vector<std::vector<ToolCall>> told;
      std::size_t names = 0;
      for (const char c : add + "\n" + add) {
        JobUpdate update;
        update.choices.resize(1);
        update.choices[0].text = std::string(1, c);
        answer.take(update, told);
        for (const ToolCall& call : told[0]) names += call.name.empty() ? 0 : 1;
      }
      ASSERT_EQ(names, one ? 1U : 2U);
      ASSERT_EQ(answer.calls[0].size(), names);
      for (const ToolCall& call : answer.calls[0]) EXPECT_EQ(call.arguments, R"({"a": 1})");
      EXPECT_EQ(answer.texts[0].text, "");
    }
}

TEST(ToolCallReader, TellsWhatThereIsOfAForcedCallThatWasCutOff) {
  const std::map<ToolForm, std::string> whole{
      {ToolForm::kHermes,
       "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": {\"a\": 1}}}\n</tool_call>"},
      {ToolForm::kLlama, "{\"name\": \"add\", \"parameters\": {\"a\": {\"a\": 1}}}"},
      {ToolForm::kMistral, "[{\"name\": \"add\", \"arguments\": {\"a\": {\"a\": 1}}}]"}};
  for (const auto& [form, answer] : whole)
    for (std::size_t length = 0; length <= answer.size(); ++length) {
      const Read all = read(form, answer.substr(0, length), 3, /*begun=*/true);
      EXPECT_EQ(all.text, "") << answer.substr(0, length);
      const std::size_t named = answer.find(','), begun = answer.find('{', named);
      if (length <= named) {
        EXPECT_TRUE(all.calls.empty()) << length;
      } else {
        ASSERT_EQ(all.calls.size(), 1u) << length;
        const std::size_t arguments =
            length > begun ? std::min<std::size_t>(length - begun, 15) : 0;
        EXPECT_EQ(all.calls[0], "add " + answer.substr(begun, arguments)) << length;
      }
    }
}

TEST(ToolCallReader, TellsAForcedCallAsItWasWrittenThoughItIsNoUsualJson) {
  const std::string twice = "{\"name\": \"add\", \"parameters\": {\"a\": 1, \"a\": 2}}";
  expect(ToolForm::kLlama, twice, "", {"add {\"a\": 1, \"a\": 2}"}, true);
}

TEST(CallGrammar, HasObjectsAloneForArguments) {
  const auto allows = [](const char* parameters, const std::string& arguments) {
    const auto grammar = std::make_shared<const grammar::Grammar>(
        call_grammar(ToolForm::kLlama, {{"f", Json::parse(parameters)}}));
    return grammar::reads(grammar, R"({"name": "f", "parameters": )" + arguments + "}");
  };
  for (const char* nothing :
       {"{}", "true", R"({"title": "t"})", R"({"$schema": "s"})", R"({"type": "object"})",
        R"({"type": ["object", "null"]})", R"({"type": "object", "properties": {}})",
        R"({"type": "object", "properties": null, "required": null})"}) {
    EXPECT_TRUE(allows(nothing, "{}")) << nothing;
    for (const char* other : {"null", "1", "[]", "false", "\"a\"", R"({"a": 1})"})
      EXPECT_FALSE(allows(nothing, other)) << nothing << other;
  }
  const char* either =
      R"({"anyOf": [{"type": "object", "properties": {"a": true}}, {"type": "null"}]})";
  EXPECT_TRUE(allows(either, R"({"a": 1})"));
  EXPECT_FALSE(allows(either, "null"));
  EXPECT_TRUE(allows(R"({"type": "object", "additionalProperties": true})", R"({"a": 1})"));
}

TEST(CallGrammar, RefusesASchemaByTheToolsName) {
  const std::vector<Tool> tools{{"add", Json{{"type", "object"}, {"oneOf", Json::array()}}}};
  const std::string error = error_of([&] { call_grammar(ToolForm::kHermes, tools); });
  EXPECT_NE(error.find("oneOf"), std::string::npos) << error;
  EXPECT_NE(error.find("'add'"), std::string::npos) << error;
}

}  // namespace
}  // namespace canopy::server
