#include "src/chat/reasoning.h"

#include <gtest/gtest.h>

#include <fstream>
#include <utility>

#include "tests/temp_dir.h"
#include "tests/test_data.h"

namespace canopy::chat {
namespace {

using Tags = std::pair<std::string, std::string>;

ChatTemplate load(const std::filesystem::path& file) {
  return ChatTemplate::load(test_data() / "chat_templates" / "model", {}, file);
}
ChatTemplate published(const std::string& name) {
  return load(test_data() / "chat_templates" / "templates" / (name + ".jinja"));
}
ChatTemplate of_text(const std::string& text) {
  const TempDir dir;
  dir.write("chat.jinja", text);
  return load(dir / "chat.jinja");
}

Tags tags_of(const ChatTemplate& chat_template) {
  const auto tags = find_reasoning_tags(chat_template);
  return tags ? Tags{tags->open, tags->close} : Tags{};
}

TEST(ReasoningTags, AreFoundByWhatATemplateMakesOfAMessageThatHasReasoning) {
  const Tags think{"<think>", "</think>"};
  for (const char* name :
       {"Qwen-Qwen3-0.6B", "Qwen3.5-4B", "Qwen-QwQ-32B", "GLM-4.6", "GLM-4.7-Flash",
        "HuggingFaceTB-SmolLM3-3B", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
        "deepseek-ai-DeepSeek-V3.1", "trl-qwen3_training", "trl-deepseekv3_training",
        "trl-glm4moe_training", "StepFun3.5-Flash", "openbmb-MiniCPM5-1B"})
    EXPECT_EQ(tags_of(published(name)), think) << name;
  EXPECT_EQ(tags_of(published("ByteDance-Seed-OSS")), (Tags{"<seed:think>", "</seed:think>"}));
  EXPECT_EQ(tags_of(published("mistralai-Ministral-3-14B-Reasoning-2512")),
            (Tags{"[THINK]", "[/THINK]"}));
}

TEST(ReasoningTags, AreNotFoundWhereATemplateKnowsOfNoReasoning) {
  for (const char* name :
       {"axolotl-chatml", "Qwen-Qwen2.5-7B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407",
        "microsoft-Phi-3.5-mini-instruct", "trl-smolvlm", "openai-gpt-oss-120b"})
    EXPECT_EQ(tags_of(published(name)), Tags()) << name;
  EXPECT_EQ(tags_of(of_text("{{ raise_exception('no') }}")), Tags());
}

TEST(ReasoningTags, AreFoundWhereEveryAnswerHasAnEmptyBlock) {
  EXPECT_EQ(tags_of(of_text("{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}"
                            "<r>{{ m.reasoning_content or '' }}</r>{% endif %}{{ m.content }}"
                            "{% endfor %}")),
            (Tags{"<r>", "</r>"}));
}

TEST(ReasoningTags, APromptThatEndsWithTheOpeningTagHasOpenedTheReasoning) {
  const ReasoningTags tags{"<think>", "</think>"};
  EXPECT_TRUE(opens_reasoning(tags, "<|assistant|><think>\n"));
  EXPECT_FALSE(opens_reasoning(tags, "<|assistant|>"));
  EXPECT_FALSE(opens_reasoning(tags, "<|assistant|><think>\n\n</think>\n\n"));
  EXPECT_FALSE(opens_reasoning(tags, "what is <think> for?<|assistant|>"));
}

TEST(ReasoningTags, TheBeginningOfAnAnswerMayLeaveABlockOpen) {
  const ReasoningTags tags{"<think>", "</think>"};
  EXPECT_TRUE(leaves_open(tags, "<think>"));
  EXPECT_TRUE(leaves_open(tags, "<think>\nso far"));
  EXPECT_FALSE(leaves_open(tags, "<think>all</think>\nthe ans"));
  EXPECT_FALSE(leaves_open(tags, "the ans"));
  EXPECT_FALSE(leaves_open(tags, ""));
}

/// {reasoning, text} of an answer that comes in pieces of `cut` bytes.
Tags read(const std::string& answer, std::size_t cut, bool open) {
  ReasoningReader reader({"<think>", "</think>"}, open);
  Tags all;
  const auto add = [&](const ReasoningReader::Found& found) {
    all.first += found.reasoning;
    all.second += found.text;
  };
  for (std::size_t at = 0; at < answer.size(); at += cut) add(reader.push(answer.substr(at, cut)));
  add(reader.end());
  return all;
}

TEST(ReasoningReader, SeparatesReasoningFromTextHoweverTokensCutThem) {
  struct Case {
    const char* answer;
    bool open;
    Tags expected;
  };
  const Case cases[] = {
      {"<think>\nLet me\n\nsee.\n</think>\n\n  Yes.\n", false, {"Let me\n\nsee.", "Yes.\n"}},
      {"\n<think>a</think>b", false, {"a", "b"}},
      {"Let me see.\n</think>\n\nYes.", true, {"Let me see.", "Yes."}},
      {"<think>\n\n</think>\n\nYes.", false, {"", "Yes."}},
      {" Yes, <think> is a tag. </think>", false, {"", " Yes, <think> is a tag. </think>"}},
      {"<thin ice", false, {"", "<thin ice"}},
      {"<think", false, {"", "<think"}},
      {"a </thin b </think>c </think>", true, {"a </thin b", "c </think>"}},
      {"cut off </thi", true, {"cut off </thi", ""}},
      {"<think>cut off ", false, {"cut off", ""}},
      {"", false, {"", ""}},
      {" \n", false, {"", " \n"}},
  };
  for (const Case& one : cases)
    for (std::size_t cut = 1; cut < 40; ++cut)
      EXPECT_EQ(read(one.answer, cut, one.open), one.expected) << one.answer << ", by " << cut;
}

TEST(ReasoningReader, HoldsBackNoMoreThanMayBeATag) {
  ReasoningReader reader({"<think>", "</think>"}, false);
  EXPECT_EQ(reader.push("<th").reasoning, "");
  EXPECT_EQ(reader.push("ink>one").reasoning, "one");
  EXPECT_EQ(reader.push(" two <").reasoning, " two");
  EXPECT_EQ(reader.push("b>").reasoning, " <b>");
  EXPECT_EQ(reader.push("</think>").text, "");
  EXPECT_EQ(reader.push("\n\n").text, "");
  EXPECT_EQ(reader.push("three").text, "three");
}

}  // namespace
}  // namespace canopy::chat
