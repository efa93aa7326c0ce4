// A checkpoint's chat template: its place, the names that it is given, and its errors.
#include "src/chat/chat_template.h"

#include <gtest/gtest.h>

#include "tests/error_of.h"
#include "tests/temp_dir.h"

namespace canopy::chat {
namespace {

using nlohmann::ordered_json;

const ordered_json kHello = ordered_json::parse(R"([{"role": "user", "content": "Hello"}])");
const ordered_json kTools = ordered_json::parse(R"([{"type": "function"}])");

std::string render(const ChatTemplate& chat_template, const ordered_json& tools = {},
                   const ordered_json& variables = {}) {
  return chat_template.render({.messages = kHello, .tools = tools, .variables = variables},
                              std::tm{});
}

Metadata gguf() {
  Metadata metadata;
  metadata.set("tokenizer.ggml.tokens", std::vector<std::string>{"<s>", "</s>", "<unk>"});
  metadata.set("tokenizer.ggml.bos_token_id", std::int64_t{0});
  metadata.set("tokenizer.ggml.eos_token_id", std::int64_t{1});
  return metadata;
}

TEST(ChatTemplate, PrefersItsOwnFileToTheTokenizersConfig) {
  const TempDir dir;
  dir.write("tokenizer_config.json", R"({"chat_template": "config {{ messages[0].content }}"})");
  EXPECT_EQ(render(ChatTemplate::load(dir.path(), {})), "config Hello");
  EXPECT_EQ(ChatTemplate::load(dir.path(), {}).origin(), (dir / "tokenizer_config.json").string());
  dir.write("chat_template.jinja", "file {{ messages[0].content }}\n");
  EXPECT_EQ(render(ChatTemplate::load(dir.path(), {})), "file Hello");
  dir.write("own.jinja", "own {{ messages[0].content }}");
  EXPECT_EQ(render(ChatTemplate::load(dir.path(), {}, dir / "own.jinja")), "own Hello");
  EXPECT_EQ(render(ChatTemplate::load_text(dir.path(), {}, "{{ messages[0].content }}", "a flag")),
            "Hello");
}

TEST(ChatTemplate, NamesTheTokensOfTekkenWhereItIsTheTokenizer) {
  const TempDir dir;
  dir.write("tekken.json", "{}");
  const std::string none = error_of([&] { ChatTemplate::load(dir.path(), {}); });
  EXPECT_NE(none.find("chat_template.jinja"), std::string::npos) << none;
  dir.write("chat_template.jinja", "{{ bos_token }}|{{ eos_token }}|{{ messages[0].content }}");
  EXPECT_EQ(render(ChatTemplate::load(dir.path(), {})), "<s>|</s>|Hello");
  dir.write("tokenizer_config.json", R"({"eos_token": "<other>"})");
  EXPECT_EQ(render(ChatTemplate::load(dir.path(), {})), "<s>|<other>|Hello");
  dir.write("tokenizer.json", "{}");
  EXPECT_EQ(render(ChatTemplate::load(dir.path(), {})), "|<other>|Hello");
}

TEST(ChatTemplate, TakesTheTemplateForToolsWhereThereIsOne) {
  const TempDir dir;
  dir.write("tokenizer_config.json", R"({"chat_template": [
      {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]})");
  EXPECT_EQ(render(ChatTemplate::load(dir.path(), {})), "plain");
  EXPECT_EQ(render(ChatTemplate::load(dir.path(), {}), kTools), "tools");
  dir.write("chat_template.jinja", "file");
  EXPECT_EQ(render(ChatTemplate::load(dir.path(), {}), kTools), "file");
  dir.write("additional_chat_templates/tool_use.jinja", "file for tools");
  EXPECT_EQ(render(ChatTemplate::load(dir.path(), {}), kTools), "file for tools");

  Metadata metadata = gguf();
  metadata.set("tokenizer.chat_template", "plain");
  metadata.set("tokenizer.chat_template.tool_use", "tools");
  EXPECT_EQ(render(ChatTemplate::load("m.gguf", metadata), kTools), "plain");
  metadata.set("tokenizer.chat_templates", std::vector<std::string>{"tool_use"});
  EXPECT_EQ(render(ChatTemplate::load("m.gguf", metadata), kTools), "tools");
  EXPECT_EQ(render(ChatTemplate::load("m.gguf", metadata)), "plain");
}

TEST(ChatTemplate, GivesSpecialTokensByName) {
  const std::string source = "{{ bos_token }}|{{ eos_token }}|{{ unk_token }}|{{ pad_token }}";
  const TempDir dir;
  dir.write("chat_template.jinja", source);
  dir.write("tokenizer_config.json",
            R"({"bos_token": "<a>", "eos_token": {"content": "<b>"}, "unk_token": null,
                "add_bos_token": true})");
  dir.write("special_tokens_map.json", R"({"bos_token": "<other>", "pad_token": "<c>"})");
  EXPECT_EQ(render(ChatTemplate::load(dir.path(), {})), "<a>|<b>||<c>");
  EXPECT_EQ(render(ChatTemplate::load(dir.path(), {}), {}, {{"bos_token", "<mine>"}}),
            "<mine>|<b>||<c>");

  Metadata metadata = gguf();
  metadata.set("tokenizer.chat_template", source);
  metadata.set("tokenizer.ggml.unknown_token_id", std::int64_t{2});
  EXPECT_EQ(render(ChatTemplate::load("m.gguf", metadata)), "<s>|</s>|<unk>|");
  metadata.set("tokenizer.ggml.eos_token_id", std::int64_t{3});
  EXPECT_NE(error_of([&] {
              ChatTemplate::load("m.gguf", metadata);
            }).find("tokenizer.ggml.eos_token_id is 3, but there are 3 tokens"),
            std::string::npos);
}

TEST(ChatTemplate, GivesWhatApplyChatTemplateGives) {
  const TempDir dir;
  dir.write("chat_template.jinja",
            "{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}"
            "{{ strftime_now('%Y-%m-%d') }}{{ extra }}{{ documents }}");
  const auto chat_template = ChatTemplate::load(dir.path(), {});
  std::tm now{};
  now.tm_year = 126, now.tm_mon = 2, now.tm_mday = 7;
  EXPECT_EQ(chat_template.render({.messages = kHello}, now), "TrueTrueTrue2026-03-07None");
  EXPECT_EQ(chat_template.render({.messages = kHello,
                                  .tools = kTools,
                                  .documents = {{{"title", "a"}}},
                                  .add_generation_prompt = false,
                                  .variables = {{"extra", 1}}},
                                 now),
            "FalseFalseFalse2026-03-071[{'title': 'a'}]");
}

TEST(ChatTemplate, GivesThoughtsUnderTheNamesThatTemplatesRead) {
  const TempDir dir;
  dir.write("chat_template.jinja", "{{ messages[0].thinking }}{{ messages[0].reasoning_content }}");
  const auto chat_template = ChatTemplate::load(dir.path(), {});
  for (const char* name : {"thinking", "reasoning", "reasoning_content"}) {
    SCOPED_TRACE(name);
    ordered_json messages = kHello;
    messages[0][name] = "x";
    EXPECT_EQ(chat_template.render({.messages = messages}, std::tm{}), "xx");
  }
  EXPECT_EQ(chat_template.render({.messages = kHello}, std::tm{}), "");
}

TEST(ChatTemplate, SaysWhereItWasLookedForAndWhatToDo) {
  const TempDir dir;
  const std::string none = error_of([&] { ChatTemplate::load(dir.path(), {}); });
  for (const char* part : {"chat_template.jinja", "tool_use.jinja", "tokenizer_config.json",
                           "give one by --chat-template-file"})
    EXPECT_NE(none.find(part), std::string::npos) << none;
  EXPECT_NE(error_of([&] {
              ChatTemplate::load("m.gguf", gguf());
            }).find("looked for in m.gguf, tokenizer.chat_template; give one by"),
            std::string::npos);
  dir.write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_NE(error_of([&] {
              ChatTemplate::load(dir.path(), {});
            }).find("tokenizer_config.json, only 'rag'; give one by --chat-template-file"),
            std::string::npos);
}

TEST(ChatTemplate, SaysWhatIsWrongWithItsFiles) {
  const TempDir dir;
  const auto expect = [&](std::string_view part) {
    const std::string error = error_of([&] { ChatTemplate::load(dir.path(), {}); });
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  dir.write("tokenizer_config.json", R"({"chat_template": 5})");
  expect("'chat_template' is neither a text nor a list");
  expect("while reading " + (dir / "tokenizer_config.json").string());
  dir.write("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  expect("an entry of 'chat_template' has no text 'template'");
  dir.write("tokenizer_config.json", "[]");
  expect("it is not a JSON object");
  dir.write("chat_template.jinja", "\n{% endif %}");
  dir.write("tokenizer_config.json", "{}");
  expect("unexpected 'endif', at line 2, column 4 of the template");
  expect("while reading the chat template of " + (dir / "chat_template.jinja").string());
}

TEST(ChatTemplate, RefusesConversationsOfTheWrongForm) {
  const TempDir dir;
  dir.write("chat_template.jinja", "x");
  const auto chat_template = ChatTemplate::load(dir.path(), {});
  const auto expect = [&](const Conversation& conversation, std::string_view part) {
    const std::string error = error_of([&] { chat_template.render(conversation, std::tm{}); });
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  expect({}, "'messages' is not a list");
  expect({.messages = "Hello"}, "'messages' is not a list");
  expect({.messages = ordered_json::array({"Hello"})}, "'messages[0]' is not an object");
  expect({.messages = kHello, .tools = 1}, "'tools' is not a list");
  expect({.messages = kHello, .documents = {1}}, "'documents[0]' is not an object");
  expect({.messages = kHello, .variables = 1}, "the variables of the chat template");
  expect({.messages = kHello, .variables = {{"tools", 1}}},
         "the variable 'tools' of the chat template is the conversation's own");
}

}  // namespace
}  // namespace canopy::chat
