#include "planner/shape_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "src/base/error.h"

namespace canopy {
namespace {

bool equal(const TreeShape& a, const TreeShape& b) {
  return std::ranges::equal(a.parents(), b.parents());
}

TEST(ShapeText, KxLIsKSequencesOfLNodes) {
  ASSERT_TRUE(parse_shape("5x8"));
  EXPECT_TRUE(equal(*parse_shape("5x8"), TreeShape::sequences(5, 8)));
  EXPECT_TRUE(equal(*parse_shape("1x7"), TreeShape::chain(8)));
  EXPECT_THROW(parse_shape("0x8"), Error);
  EXPECT_THROW(parse_shape("8x0"), Error);
  EXPECT_THROW(parse_shape("1000x1000"), Error);
}

TEST(ShapeText, NumbersAreTheChildrenOnEachLevel) {
  const int children[] = {4, 2, 1};
  EXPECT_TRUE(equal(*parse_shape("4,2,1"), TreeShape::branching(children)));
  EXPECT_EQ(parse_shape("3")->size(), 4);
  EXPECT_THROW(parse_shape("4,0"), Error);
}

TEST(ShapeText, KAryIsWrittenWithItsChildrenAndItsNodes) {
  ASSERT_TRUE(parse_shape("2-ary:64"));
  EXPECT_TRUE(equal(*parse_shape("2-ary:64"), TreeShape::k_ary(2, 64)));
  EXPECT_TRUE(equal(*parse_shape("5-ary:6"), *parse_shape("5")));
  EXPECT_THROW(parse_shape("0-ary:8"), Error);
  EXPECT_THROW(parse_shape("2-ary:0"), Error);
  EXPECT_THROW(parse_shape("2-ary:1000001"), Error);
}

TEST(ShapeText, OtherTextMayNameAFile) {
  for (const char* text : {"",         "x",         "8x",          "x8",        "8x8x8",
                           "4,",       ",4",        "4, 2",        "-4",        "4,-2",
                           "8x-8",     "tree.json", "8x8.json",    "1e3",       "99999999999x2",
                           "2-ary",    "2-ary:",    "-ary:8",      "2-ary:8:8", "2-ary:-8",
                           "-2-ary:8", "2-ary 8",   "2-ary:8.json"})
    EXPECT_FALSE(parse_shape(text)) << text;
}

TEST(ShapeText, AnArrayOfParentsOrAnObjectThatHasOneIsAShape) {
  const TreeShape expected = TreeShape::from_parents({-1, 0, 0, 1});
  EXPECT_TRUE(equal(shape_from_json("[-1, 0, 0, 1]"), expected));
  EXPECT_TRUE(equal(shape_from_json(R"({"name": "mine", "parents": [-1, 0, 0, 1]})"), expected));
}

TEST(ShapeText, PublishedShapesLoadWithTheSizesThatTheirPaperGives) {
  for (const auto& [name, nodes, levels, children] :
       {std::tuple{"A100-C4-68m-7b-greedy", 128, 10, 8},  // Table 4: (128, 10)
        {"L40-CNN-68m-13b-stochastic-S512", 512, 12, 32},
        {"shape-5x8-tree", 41, 9, 5},
        {"umbrella-sequoia_tree-5x6", 31, 7, 5}}) {
    SCOPED_TRACE(name);
    std::ifstream file(CANOPY_TEST_DATA "/planner/trees/" + std::string(name) + ".json");
    const std::string json{std::istreambuf_iterator<char>(file), {}};
    const TreeShape shape = shape_from_json(json);
    EXPECT_EQ(shape.size(), nodes);
    EXPECT_EQ(shape.levels(), levels);
    EXPECT_EQ(shape.child_count(0), children);
    if (name == std::string("shape-5x8-tree")) {
      EXPECT_TRUE(equal(shape, TreeShape::sequences(5, 8)));
    }
  }
}

TEST(ShapeText, SaysWhatIsWrongWithAFile) {
  const auto message = [](const char* json) -> std::string {
    try {
      shape_from_json(json);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  for (const auto& [json, says] : {std::pair{"", "not JSON"},
                                   {"[-1, 0", "not JSON"},
                                   {"{}", "parents"},
                                   {"{\"parents\": 3}", "parents"},
                                   {"\"parents\"", "parents"},
                                   {"[]", "node 0"},
                                   {"[0]", "node 0"},
                                   {"[-1, 0.5]", "node 1"},
                                   {"[-1, 0, \"1\"]", "node 2"},
                                   {"[-1, 0, -2]", "node 2"},
                                   {"[18446744073709551615, 0]", "node 0"},
                                   {"[-1, 4294967296]", "node 1"},
                                   {"[-1, 1]", "node 1"},
                                   {"[-1, 0, 1, 0]", "node 3"}})
    EXPECT_NE(message(json).find(says), std::string::npos) << json << ": " << message(json);
}

}  // namespace
}  // namespace canopy
