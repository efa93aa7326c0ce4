#include "src/server/stored_responses.h"

#include <gtest/gtest.h>

namespace canopy::server {
namespace {

std::string reply_of(const StoredResponses& stored, const std::string& id) {
  const auto found = stored.find(id);
  return found ? found->reply : "none";
}

TEST(StoredResponses, AreFoundUntilTheyAreRemoved) {
  StoredResponses stored;
  stored.add("a", {"A", "[1]"});
  stored.add("b", {"B", "[2]"});
  EXPECT_EQ(reply_of(stored, "a"), "A");
  EXPECT_EQ(stored.find("b")->items, "[2]");
  const auto held = stored.find("a");
  EXPECT_TRUE(stored.remove("a"));
  EXPECT_EQ(held->reply, "A");  // for who has it already
  EXPECT_EQ(reply_of(stored, "a"), "none");
  EXPECT_FALSE(stored.remove("a"));
  EXPECT_EQ(reply_of(stored, "b"), "B");
}

TEST(StoredResponses, TheOldestGoBeyondANumber) {
  StoredResponses stored(2);
  for (const char* id : {"a", "b", "c"}) stored.add(id, {id, ""});
  EXPECT_EQ(reply_of(stored, "a"), "none");
  EXPECT_EQ(reply_of(stored, "b") + reply_of(stored, "c"), "bc");
}

TEST(StoredResponses, TheOldestGoBeyondBytesOfTheirIdsRepliesAndItems) {
  StoredResponses stored(9, 12);
  stored.add("a", {"12", "3"});
  stored.add("b", {"12", "3"});
  stored.add("c", {"12", "3"});
  EXPECT_EQ(reply_of(stored, "a"), "12");
  stored.add("d", {"", "12"});
  EXPECT_EQ(reply_of(stored, "a"), "none");
  EXPECT_EQ(reply_of(stored, "b"), "12");
  stored.remove("b");  // which makes room again
  stored.add("e", {"", "1234"});
  EXPECT_EQ(reply_of(stored, "c"), "12");
  stored.add("large", {std::string(12, 'x'), ""});
  EXPECT_EQ(reply_of(stored, "large"), "none");
  EXPECT_EQ(reply_of(stored, "c"), "12");
}

TEST(StoredResponses, SayTheirBoundsWhereThereIsNone) {
  const std::string why = StoredResponses(7, 4096).why_none("resp_x");
  for (const char* part : {"resp_x", "7 responses", "4096 bytes", "input"})
    EXPECT_NE(why.find(part), std::string::npos) << why;
}

}  // namespace
}  // namespace canopy::server
