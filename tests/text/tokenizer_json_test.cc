// Contents that tokenizer.json may have, and the errors for a hostile one.
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/base/file.h"
#include "src/text/tokenizer.h"
#include "tests/error_of.h"
#include "tests/temp_dir.h"
#include "tests/text/golden.h"

namespace canopy {
namespace {

using nlohmann::json;

class TokenizerJson : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> load(const Metadata& config = {}) {
    dir_.write("tokenizer.json", document_.dump());
    return load_tokenizer(dir_.path(), config);
  }
  /// The message of the Error that loading ends in.
  std::string refusal(const Metadata& config = {}) {
    try {
      load(config);
    } catch (const Error& e) {
      return e.what();
    }
    return "loaded";
  }
  void expect_refusal(std::string_view words) {
    const std::string message = refusal();
    EXPECT_NE(message.find(words), std::string::npos) << message;
    EXPECT_NE(message.find((dir_.path() / "tokenizer.json").string()), std::string::npos)
        << message;
  }

  TempDir dir_;
  json document_ = golden::load("llama3/tokenizer.json");
};

TEST_F(TokenizerJson, RefusesPartsThatItDoesNotKnowByName) {
  const json unknown = {{"type", "Surprise"}};
  for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
    const json before = document_[part];
    document_[part] = unknown;
    expect_refusal(std::string(part) + ": the type 'Surprise' is not supported");
    document_[part] = before;
  }
  document_["pre_tokenizer"]["pretokenizers"][1] = unknown;
  expect_refusal("pre_tokenizer[1]: the type 'Surprise' is not supported");
}

TEST_F(TokenizerJson, RefusesToMakeATextManyTimesAsLong) {
  const auto sequence = [](const char* list, const json& step, int times) {
    return json{{"type", "Sequence"},
                {list, std::vector<json>(static_cast<std::size_t>(times), step)}};
  };
  const json twice = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const auto growing = [&](const char* part, const char* list, const json& step) {
    const json before = document_[part];
    document_[part] = sequence(list, step, 40);
    const std::string message = error_of([&] {
      load()->encode(std::string(1000, 'a') + std::string(1000, '\x01'), AddSpecial::kNo);
    });
    EXPECT_NE(message.find("eight times as long"), std::string::npos) << part << ": " << message;
    document_[part] = before;
  };
  growing("normalizer", "normalizers", twice);
  growing("pre_tokenizer", "pretokenizers", bytes);
  growing("decoder", "decoders", twice);
  document_["normalizer"] = sequence("normalizers", {{"type", "NFC"}}, 65);
  expect_refusal("normalizer: more than 64 steps");
}

TEST_F(TokenizerJson, EncodingStopsOnRequest) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THROW(load()->encode("some text", AddSpecial::kNo, stop.get_token()), Stopped);
}

TEST_F(TokenizerJson, RefusesModelsThatItWouldGetWrong) {
  const json model = document_["model"];
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, json>>{{"type", "Unigram"},
                                                 {"continuing_subword_prefix", "##"},
                                                 {"end_of_word_suffix", "</w>"},
                                                 {"dropout", 0.1},
                                                 {"unk_token", "<nowhere>"},
                                                 {"ignore_merges", 1},
                                                 {"vocab", json::array()},
                                                 {"merges", nullptr}}) {
    document_["model"] = model;
    document_["model"][key] = value;
    expect_refusal("model");
  }
}

TEST_F(TokenizerJson, RefusesIdsThatNoVocabularyOfThisSizeHas) {
  for (const json& id : {json(-1), json(1ull << 40), json(2000000000),
                         json(18446744073709551615ull), json(1.5), json("7"), json(nullptr)}) {
    document_["model"]["vocab"]["new"] = id;
    expect_refusal("'new'");
  }
}

TEST_F(TokenizerJson, RefusesTwoTokensOfOneId) {
  document_["model"]["vocab"]["new"] = 5;
  expect_refusal("id 5 belongs to two tokens");
}

TEST_F(TokenizerJson, RefusesAnAddedTokenThatContradictsTheModel) {
  document_["added_tokens"][0]["id"] = 2;
  expect_refusal("added_tokens[0]");
}

TEST_F(TokenizerJson, RefusesMergesOfTokensThatDoNotExist) {
  auto& merges = document_["model"]["merges"];
  for (const json& merge : {json({"a", "nowhere"}), json("nowhere a"), json({"!", "?"})}) {
    merges[3] = merge;
    expect_refusal("model.merges[3] needs");
  }
  for (const json& merge : {json("ab"), json("a b c"), json({"a"}), json(7), json({"a", 1})}) {
    merges[3] = merge;
    expect_refusal("model.merges[3] is neither");
  }
}

TEST_F(TokenizerJson, RefusesTemplatesWithUnknownTokensOrWithoutText) {
  auto& post = document_["post_processor"]["processors"][1];
  const json before = post;
  post["special_tokens"]["<|im_start|>"]["ids"] = {1000000};
  expect_refusal("token 1000000 is outside the vocabulary");
  post = before;
  post["single"].erase(1);
  expect_refusal("no place for the text");
  post = before;
  post["special_tokens"] = json::object();
  expect_refusal("'<|im_start|>' is missing");
}

TEST_F(TokenizerJson, RefusesALongAddedToken) {
  document_["added_tokens"][0]["content"] = std::string(5000, 'x');
  document_["added_tokens"][0]["id"] = 430;
  expect_refusal("5000 bytes long");
}

TEST_F(TokenizerJson, RefusesDeepNesting) {
  constexpr std::size_t kLevels = 1'000'000;
  dir_.write("tokenizer.json", std::string(kLevels, '[') + std::string(kLevels, ']'));
  try {
    load_tokenizer(dir_.path(), {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("nested deeper"), std::string::npos) << e.what();
  }
}

TEST_F(TokenizerJson, RefusesALargeFileWithoutReadingIt) {
  dir_.write("tokenizer.json", "{");
  std::filesystem::resize_file(dir_.path() / "tokenizer.json", kMostTokenizerBytes + 1);
  try {
    load_tokenizer(dir_.path(), {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("allowed"), std::string::npos) << e.what();
  }
}

TEST_F(TokenizerJson, RefusesEveryTruncation) {
  const std::string whole = document_.dump();
  for (std::size_t length = 0; length < whole.size(); length += 97) {
    dir_.write("tokenizer.json", whole.substr(0, length));
    EXPECT_THROW(load_tokenizer(dir_.path(), {}), Error) << length;
  }
}

TEST_F(TokenizerJson, SurvivesEveryWrongTypeOfEveryPart) {
  // Whatever loads must also encode: nothing may rest on a check that was not made.
  auto& merges = document_["model"]["merges"];
  merges.erase(merges.begin() + 3, merges.end());
  const json original = document_.flatten();
  for (const auto& [pointer, value] : original.items()) {
    if (pointer.starts_with("/model/vocab/")) continue;
    for (const json& wrong :
         {json(nullptr), json(-7), json("\x01?"), json::array(), json::object(), json(true)}) {
      document_ = original.unflatten();
      document_[json::json_pointer(pointer)] = wrong;
      try {
        load()->encode("<|im_start|> it's 12 words", AddSpecial::kYes);
      } catch (const Error&) {
      }
    }
  }
}

TEST_F(TokenizerJson, SaysWhatADirectoryWithoutTheFileNeeds) {
  EXPECT_THROW(load_tokenizer(dir_.path(), {}), Error);
}

TEST_F(TokenizerJson, EndsTextAtTheTokensOfAllThreeConfigs) {
  Metadata config;
  config.set("eos_token_id", std::vector<std::int32_t>{3, 4});
  dir_.write("generation_config.json", R"({"eos_token_id": [4, 5]})");
  dir_.write("tokenizer_config.json", R"({"eos_token": {"content": "<|im_end|>"}})");
  const auto tokenizer = load(config);
  std::vector<TokenId> ends;
  for (TokenId id = 0; id < tokenizer->vocab(); ++id)
    if (tokenizer->ends_text(id)) ends.push_back(id);
  EXPECT_EQ(ends, (std::vector<TokenId>{2, 3, 4, 5}));
}

TEST_F(TokenizerJson, IgnoresEndTokensOutsideTheVocabulary) {
  Metadata config;
  config.set("eos_token_id", std::vector<std::int32_t>{3, -1});
  dir_.write("generation_config.json", R"({"eos_token_id": [100000, 4]})");
  const auto tokenizer = load(config);
  EXPECT_TRUE(tokenizer->ends_text(3));
  EXPECT_TRUE(tokenizer->ends_text(4));
  config.set("eos_token_id", std::int64_t{-1});
  load(config);
  dir_.write("tokenizer_config.json", R"({"eos_token": "<nowhere>"})");
  EXPECT_NE(refusal().find("'<nowhere>' is no token"), std::string::npos);
}

/// OPT's tokenizer as its repositories have it: GPT-2's three files.
class VocabAndMerges : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> load() {
    dir_.write("vocab.json", vocab_.dump());
    dir_.write("merges.txt", merges_);
    dir_.write("tokenizer_config.json", config_.dump());
    return load_tokenizer(dir_.path(), {});
  }
  void expect_refusal(std::string_view words) {
    const std::string message = error_of([&] { load(); });
    EXPECT_NE(message.find(words), std::string::npos) << message;
  }
  static std::string lines_of(const json& merges) {
    std::string lines = "#version: 0.2\n";
    for (const json& merge : merges)
      lines +=
          (merge.is_string() ? merge.get<std::string>()
                             : merge[0].get<std::string>() + " " + merge[1].get<std::string>()) +
          "\n";
    return lines;
  }

  TempDir dir_;
  const json document_ = golden::load("opt/tokenizer.json");
  json vocab_ = document_["model"]["vocab"];
  std::string merges_ = lines_of(document_["model"]["merges"]);
  json config_{{"tokenizer_class", "GPT2Tokenizer"},
               {"add_bos_token", true},
               {"bos_token", {{"__type", "AddedToken"}, {"content", "</s>"}, {"normalized", true}}},
               {"eos_token", "</s>"},
               {"pad_token", "<pad>"}};
};

TEST_F(VocabAndMerges, AreTheTokenizerJsonThatTheyStandFor) {
  for (const json& token : document_["added_tokens"])
    config_["added_tokens_decoder"][token["id"].dump()] = token;
  golden::expect_encodings(*load(), "opt");
}

TEST_F(VocabAndMerges, TakeTheSpecialTokensThatTheConfigNames) {
  const auto tokenizer = load();
  const std::vector<TokenId> ids = tokenizer->encode("a</s><pad>", AddSpecial::kYes);
  EXPECT_EQ(ids, (std::vector<TokenId>{2, vocab_["a"].get<TokenId>(), 2, 1}));
  EXPECT_TRUE(tokenizer->is_special(1));
  EXPECT_TRUE(tokenizer->ends_text(2));
  EXPECT_EQ(tokenizer->decode(ids, AddSpecial::kNo), "a");
  config_["added_tokens_decoder"] = {{"400", {{"content", "<new>"}, {"special", true}}}};
  EXPECT_EQ(load()->encode("a<new>", AddSpecial::kNo).back(), 400) << "of no vocab.json";
  config_.erase("added_tokens_decoder");
  config_["add_bos_token"] = false;
  config_["add_prefix_space"] = true;
  EXPECT_EQ(load()->encode("a", AddSpecial::kYes), tokenizer->encode(" a", AddSpecial::kNo));
  merges_ = "";
  EXPECT_EQ(load()->encode("a", AddSpecial::kNo).size(), 2u) << "a space and a letter";
}

TEST_F(VocabAndMerges, AreRefusedByWhatIsWrong) {
  const json config = config_;
  config_["tokenizer_class"] = "RobertaTokenizer";
  expect_refusal("'RobertaTokenizer'");
  config_.erase("tokenizer_class");
  expect_refusal("'tokenizer_class'");
  config_ = config;
  config_["pad_token"] = "<none>";
  expect_refusal("pad_token: '<none>' is not in vocab.json");
  config_ = config;
  config_.erase("bos_token");
  expect_refusal("'bos_token'");
  config_ = config;
  config_["added_tokens_decoder"] = {{"9", {{"content", "</s>"}}}};
  expect_refusal("'</s>' has id 9 here and id 2 in model.vocab");
  for (const char* key : {"nine", "9x", ""}) {
    config_["added_tokens_decoder"] = {{key, {{"content", "<none>"}}}};
    expect_refusal("is not the id of a token");
  }
  config_["added_tokens_decoder"] = {{"9", "</s>"}};
  expect_refusal("'9' is not the id of a token");
  config_ = config;
  merges_ += "three words here\n";
  expect_refusal("model.merges[140]");
  expect_refusal("vocab.json and merges.txt");
  merges_ = "";
  vocab_ = json::array();
  expect_refusal("vocab.json is not an object");
}

}  // namespace
}  // namespace canopy
