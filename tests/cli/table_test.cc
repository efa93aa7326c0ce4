#include "src/cli/output/table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace canopy::cli {
namespace {

using nlohmann::json;

TEST(Table, PadsCellsToTheirColumns) {
  const Table table({{.head = "method", .width = 8, .align = Align::kLeft, .before = ""},
                     {.head = "nodes", .width = 5},
                     {.head = "remark", .align = Align::kLeft, .before = "  "}});
  EXPECT_EQ(table.head(), "method   nodes  remark\n");
  EXPECT_EQ(table.row({"chain", "4", "short"}), "chain        4  short\n");
  EXPECT_EQ(table.row({"specinfer", "123456", ""}), "specinfer 123456  \n");
}

TEST(Table, HasNoWidthsInMarkdown) {
  const Table table({{.head = "model", .align = Align::kLeft}, {.head = "t/s"}});
  EXPECT_EQ(table.markdown_head(), "| model | t/s |\n|---|--:|\n");
  EXPECT_EQ(Table::markdown_row({"tiny", "1.25"}), "| tiny | 1.25 |\n");
}

TEST(Figure, IsADashWhereTheRowHasNoNumber) {
  const json row{{"rate", 2.5e9}, {"busy", nullptr}, {"name", "x"}};
  EXPECT_EQ(figure(row, "rate", 2, 1e-9), "2.50");
  for (const char* name : {"busy", "name", "missing"}) EXPECT_EQ(figure(row, name, 2), "-");
}

TEST(CsvTable, QuotesWhatWouldBreakALineAndLeavesListsOut) {
  const std::vector<json> rows{
      {{"a", 1}, {"list", {1, 2}}, {"name", "plain"}, {"none", nullptr}},
      {{"a", 0.5}, {"list", {3}}, {"name", "one, \"two\"\nthree"}, {"none", 7}}};
  EXPECT_EQ(csv_table(rows), "a,name,none\n1,plain,\n0.5,\"one, \"\"two\"\"\nthree\",7\n");
}

}  // namespace
}  // namespace canopy::cli
