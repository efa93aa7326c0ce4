#include "src/measure/rouge.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/test_data.h"

namespace canopy {
namespace {

TEST(Rouge, EqualsWhatWasWorkedOutByHandAndBySlowDefinitions) {
  std::ifstream in(test_data() / "measure" / "rouge.json");  // written by make_rouge.py
  const nlohmann::json cases = nlohmann::json::parse(in);
  ASSERT_EQ(cases.size(), 48U);
  for (const nlohmann::json& one : cases) {
    const std::string text = one["text"], reference = one["reference"];
    SCOPED_TRACE(text + " | " + reference);
    const Rouge found = rouge(text, reference);
    EXPECT_DOUBLE_EQ(found.one, one["rouge"][0].get<double>());
    EXPECT_DOUBLE_EQ(found.two, one["rouge"][1].get<double>());
    EXPECT_DOUBLE_EQ(found.l, one["rouge"][2].get<double>());
    const Rouge turned = rouge(reference, text);  // F1 does not care which is which
    EXPECT_DOUBLE_EQ(found.one, turned.one);
    EXPECT_DOUBLE_EQ(found.two, turned.two);
    EXPECT_DOUBLE_EQ(found.l, turned.l);
  }
}

TEST(Rouge, WordsAreLowerCasedAndSplitAtAllThatIsNoLetterOrDigit) {
  EXPECT_EQ(rouge_words(" It's 3.5\tK-means\n"),
            (std::vector<std::string>{"it", "s", "3", "5", "k", "means"}));
  EXPECT_EQ(rouge_words("na\xc3\xafve"), (std::vector<std::string>{"na", "ve"}));
  EXPECT_TRUE(rouge_words("...\xff").empty());
}

}  // namespace
}  // namespace canopy
