// Small templates against Python's Jinja (tests/data/jinja/make_cases.py wrote what it makes of
// them).
#include <gtest/gtest.h>

#include <fstream>

#include "src/jinja/template.h"
#include "tests/test_data.h"

namespace canopy::jinja {
namespace {

std::tm fixed_now() {
  std::tm now{};
  now.tm_year = 2026 - 1900;
  now.tm_mon = 2;
  now.tm_mday = 7;
  now.tm_hour = 9;
  now.tm_min = 5;
  now.tm_sec = 2;
  now.tm_wday = 6;
  now.tm_yday = 65;
  return now;
}

TEST(Cases, GiveWhatPythonsJinjaGives) {
  std::ifstream in(test_data() / "jinja" / "cases.json");
  const auto cases = nlohmann::ordered_json::parse(in);
  ASSERT_GT(cases.size(), 250u);
  for (const auto& one : cases) {
    const std::string source = one.at("template");
    SCOPED_TRACE(source);
    const auto variables = one.value("variables", nlohmann::ordered_json::object());
    try {
      const std::string text = Template(source).render(variables, fixed_now());
      EXPECT_TRUE(one.contains("text")) << "no error, but " << text;
      EXPECT_EQ(text, one.value("text", text));
    } catch (const TemplateError& e) {
      EXPECT_TRUE(one.contains("error")) << e.what();
      // Errors of syntax have our words.
      if (one.contains("error") && one["error"].is_string()) {
        EXPECT_EQ(e.message(), one["error"].get<std::string>());
      }
    }
  }
}

}  // namespace
}  // namespace canopy::jinja
