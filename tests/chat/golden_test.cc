// Published templates against transformers' apply_chat_template (tests/data/chat_templates).
#include <gtest/gtest.h>

#include <fstream>

#include "src/chat/chat_template.h"
#include "tests/test_data.h"

namespace canopy::chat {
namespace {

using nlohmann::ordered_json;

ordered_json load(const std::string& name) {
  std::ifstream in(test_data() / "chat_templates" / name);
  return ordered_json::parse(in);
}

/// 7 March 2026, 9:05:02, a Saturday, as in make_goldens.py.
std::tm fixed_now() {
  std::tm now{};
  now.tm_year = 126, now.tm_mon = 2, now.tm_mday = 7, now.tm_wday = 6, now.tm_yday = 65;
  now.tm_hour = 9, now.tm_min = 5, now.tm_sec = 2;
  return now;
}

/// {"text"} or {"error"}, as the goldens have them.
ordered_json result_of(const ChatTemplate& chat_template, const ordered_json& conversation) {
  try {
    return {
        {"text", chat_template.render(
                     {.messages = conversation.at("messages"),
                      .tools = conversation.value("tools", ordered_json()),
                      .add_generation_prompt = conversation.value("add_generation_prompt", true),
                      .variables = conversation.value("variables", ordered_json())},
                     fixed_now())}};
  } catch (const jinja::TemplateError& e) {
    return {{"error", e.message()}};
  }
}

TEST(ChatTemplates, GiveWhatTransformersGives) {
  const ordered_json conversations = load("conversations.json"), goldens = load("goldens.json");
  const std::filesystem::path directory = test_data() / "chat_templates";
  ASSERT_GE(conversations.size(), 6u);
  ASSERT_GE(goldens.size(), 30u);
  for (const auto& [name, expected] : goldens.items()) {
    const auto chat_template =
        ChatTemplate::load(directory / "model", {}, directory / "templates" / (name + ".jinja"));
    ASSERT_EQ(expected.size(), conversations.size()) << name;
    for (std::size_t i = 0; i < conversations.size(); ++i) {
      SCOPED_TRACE(name + ": " + conversations[i].at("name").get<std::string>());
      EXPECT_EQ(result_of(chat_template, conversations[i]), expected[i]);
    }
  }
}

}  // namespace
}  // namespace canopy::chat
