#include "src/hub/pick.h"

#include <gtest/gtest.h>

#include "tests/error_of.h"

namespace canopy::hub {
namespace {

using Names = std::vector<std::string>;

std::vector<RemoteFile> listed(const Names& names) {
  std::vector<RemoteFile> files;
  for (const std::string& name : names) files.push_back({name, std::nullopt, ""});
  return files;
}

Names picked(const Names& names, std::string_view quant) {
  return pick_files(listed(names), quant).files;
}

const Names kQuants{"README.md",          "x-BF16.gguf",       "x-IQ4_XS.gguf", "x-Q4_K.gguf",
                    "x-Q4_K_M.gguf",      "x-UD-Q4_K_XL.gguf", "x-Q8_0.gguf",   "x.f16.gguf",
                    "mmproj-x-Q8_0.gguf", "x.imatrix.gguf"};

TEST(PickFiles, FindsAQuantInLettersOfAnyCase) {
  EXPECT_EQ(picked(kQuants, "q8_0"), Names{"x-Q8_0.gguf"});
  EXPECT_EQ(picked(kQuants, "Q4_K"), Names{"x-Q4_K.gguf"});
  EXPECT_EQ(picked(kQuants, "Q4_K_XL"), Names{"x-UD-Q4_K_XL.gguf"});
  EXPECT_EQ(picked(kQuants, "F16"), Names{"x.f16.gguf"});
  EXPECT_EQ(pick_files(listed(kQuants), "bf16").model, "x-BF16.gguf");
}

TEST(PickFiles, WithoutAQuantTakesTheUsualOnesElseTheFirst) {
  EXPECT_EQ(picked(kQuants, ""), Names{"x-Q4_K_M.gguf"});
  EXPECT_EQ(picked({"b-Q8_0.gguf", "b-Q4_0.gguf", "b-F16.gguf"}, ""), Names{"b-Q4_0.gguf"});
  EXPECT_EQ(picked({"b-Q8_0.gguf", "b-F16.gguf"}, ""), Names{"b-F16.gguf"});
  EXPECT_EQ(picked({"model.safetensors", "config.json", "b-F16.gguf"}, ""), Names{"b-F16.gguf"});
}

TEST(PickFiles, WhereNothingMatchesListsWhatThereIs) {
  const std::string fault = error_of([] { picked(kQuants, "Q2_K"); });
  for (const char* part : {"'Q2_K'", "x-BF16, ", "x.f16", "x-UD-Q4_K_XL"})
    EXPECT_NE(fault.find(part), std::string::npos) << fault;
  EXPECT_EQ(fault.find("mmproj"), std::string::npos);
  EXPECT_NE(error_of([] {
              picked({"config.json", "pytorch_model.bin"}, "");
            }).find("pytorch_model.bin"),
            std::string::npos);
  EXPECT_NE(error_of([] { picked({}, ""); }).find("nothing"), std::string::npos);
  EXPECT_NE(error_of([] {
              picked({"config.json", "model.safetensors"}, "Q8_0");
            }).find("no GGUF"),
            std::string::npos);
}

TEST(PickFiles, AsksForMoreOfANameThatSeveralHave) {
  const Names two{"a-Q8_0.gguf", "b-Q8_0.gguf"};
  EXPECT_NE(error_of([&] { picked(two, "Q8_0"); }).find("a-Q8_0, b-Q8_0"), std::string::npos);
  EXPECT_EQ(picked(two, "b-q8_0"), Names{"b-Q8_0.gguf"});
}

TEST(PickFiles, TakesAllPartsOfASplitFile) {
  const Names parts{"Q8_0/x-Q8_0-00001-of-00003.gguf", "Q8_0/x-Q8_0-00002-of-00003.gguf",
                    "Q8_0/x-Q8_0-00003-of-00003.gguf"};
  Names all = parts;
  std::swap(all[0], all[2]);
  all.emplace_back("x-Q4_0.gguf");
  const Pick pick = pick_files(listed(all), "Q8_0");
  EXPECT_EQ(pick.model, parts[0]);
  EXPECT_EQ(pick.files, parts);
  all.erase(all.begin());
  EXPECT_NE(error_of([&] { picked(all, "Q8_0"); }).find("3 parts, and the repository has 2"),
            std::string::npos);
}

TEST(PickFiles, OfAFolderTakesWhatCommandsReadAndNothingElse) {
  Names all{"config.json",
            "generation_config.json",
            "model.safetensors",
            "tokenizer.json",
            "vocab.json",
            "chat_template.jinja",
            "pytorch_model.bin",
            "onnx/model.onnx",
            "consolidated.safetensors",
            "original/model.safetensors",
            "additional_chat_templates/tool_use.jinja",
            "additional_chat_templates/deeper/x.jinja"};
  const Pick pick = pick_files(listed(all), "");
  EXPECT_EQ(pick.model, "");
  EXPECT_FALSE(pick.by_index);
  EXPECT_EQ(pick.files, (Names{"config.json", "generation_config.json", "tokenizer.json",
                               "vocab.json", "chat_template.jinja",
                               "additional_chat_templates/tool_use.jinja", "model.safetensors"}));
}

TEST(PickFiles, OfAnIndexTakesTheShardsThatItNames) {
  const auto files = listed({"config.json", "model.safetensors.index.json", "model-1.safetensors",
                             "model-2.safetensors", "other.safetensors"});
  const Pick pick = pick_files(files, "");
  ASSERT_TRUE(pick.by_index);
  EXPECT_EQ(pick.files, (Names{"model.safetensors.index.json", "config.json"}));
  const auto shards = [&](std::string_view index) { return with_shards(pick, index, files).files; };
  EXPECT_EQ(shards(R"({"weight_map": {"b": "model-2.safetensors", "a": "model-1.safetensors",
                                      "c": "model-2.safetensors"}})"),
            (Names{"model.safetensors.index.json", "config.json", "model-1.safetensors",
                   "model-2.safetensors"}));
  EXPECT_NE(error_of([&] { shards(R"({"weight_map": {"b": "../x"}})"); }).find("leads out"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              shards(R"({"weight_map": {"b": "model-3.safetensors"}})");
            }).find("'model-3.safetensors' is not among"),
            std::string::npos);
  for (const char* wrong :
       {"[]", "{}", R"({"weight_map": []})", R"({"weight_map": {"a": 1}})", "x"})
    EXPECT_NE(error_of([&] { shards(wrong); }), "") << wrong;
}

TEST(Listing, IsReadAndWritten) {
  const std::string sha256(64, 'a'), commit(40, 'b');
  const Listing listing =
      parse_listing(R"({"sha": ")" + commit + R"(", "private": false, "siblings": [
      {"rfilename": "a/b.gguf", "size": 12, "blobId": "x", "lfs": {"sha256": ")" +
                    sha256 + R"("}},
      {"rfilename": "README.md"}, {"rfilename": "c", "size": -1, "lfs": {"sha256": "short"}}]})");
  EXPECT_EQ(listing.commit, commit);
  for (const Listing& one : {listing, parse_listing(to_json(listing))}) {
    ASSERT_EQ(one.files.size(), 3u);
    EXPECT_EQ(one.files[0].name, "a/b.gguf");
    EXPECT_EQ(one.files[0].bytes, 12u);
    EXPECT_EQ(one.files[0].sha256, sha256);
    EXPECT_FALSE(one.files[1].bytes);
    EXPECT_FALSE(one.files[2].bytes);
    EXPECT_EQ(one.files[2].sha256, "");
  }
  EXPECT_EQ(listing.find("README.md"), &listing.files[1]);
  EXPECT_EQ(listing.find("readme.md"), nullptr);
}

TEST(Listing, ThatLeadsOutOfItsFolderOrNamesNoCommitIsRefused) {
  const std::string begin = R"({"sha": ")" + std::string(40, 'b') + R"(", "siblings": )";
  for (const char* name : {"../x", "/etc/passwd", "a/../../b", ""})
    EXPECT_NE(error_of([&] {
                parse_listing(begin + R"([{"rfilename": ")" + name + R"("}]})");
              }).find("leads out"),
              std::string::npos);
  for (const std::string& wrong :
       {std::string("[]"), std::string("{}"), begin + "{}}", begin + "[1]}",
        std::string(R"({"sha": "main", "siblings": []})")})
    EXPECT_NE(error_of([&] { parse_listing(wrong); }), "") << wrong;
}

}  // namespace
}  // namespace canopy::hub
