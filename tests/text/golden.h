#pragma once
// Reads the goldens of tests/data/text (make_tokenizer_goldens.py says what is in them).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/types.h"
#include "src/text/tokenizer.h"

namespace canopy::golden {

inline std::filesystem::path data(const std::string& name) {
  return std::filesystem::path(CANOPY_TEST_DATA) / "text" / name;
}

inline nlohmann::json load(const std::string& name) {
  std::ifstream in(data(name));
  return nlohmann::json::parse(in);
}

/// A text, or {"repeat": text, "times": n}.
inline std::string text_of(const nlohmann::json& entry) {
  if (entry.is_string()) return entry;
  std::string out;
  for (int i = 0; i < entry.at("times"); ++i) out += entry.at("repeat").get<std::string>();
  return out;
}

/// Ids, runs of them as [id, count].
inline std::vector<TokenId> ids_of(const nlohmann::json& list) {
  std::vector<TokenId> ids;
  for (const auto& item : list) {
    if (item.is_array())
      ids.insert(ids.end(), item.at(1).get<std::size_t>(), item.at(0).get<TokenId>());
    else
      ids.push_back(item);
  }
  return ids;
}

/// A tokenizer has the reference library's ids of all texts: those of `name`.
inline void expect_encodings(const Tokenizer& tokenizer, const std::string& name) {
  const nlohmann::json texts = load("texts.json"), golden = load(name + "/golden.json");
  ASSERT_EQ(texts.size(), golden["plain"].size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    SCOPED_TRACE(texts[i].dump());
    const std::string text = text_of(texts[i]);
    EXPECT_EQ(tokenizer.encode(text, AddSpecial::kNo), ids_of(golden["plain"][i]));
    EXPECT_EQ(tokenizer.encode(text, AddSpecial::kYes), ids_of(golden["special"][i]));
  }
}

}  // namespace canopy::golden
