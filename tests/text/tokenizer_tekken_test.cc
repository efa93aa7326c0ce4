// tekken.json as Mistral's own library reads it, and the errors for a malformed one.
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/text/base64.h"
#include "src/text/tokenizer.h"
#include "tests/error_of.h"
#include "tests/temp_dir.h"
#include "tests/text/golden.h"

namespace canopy {
namespace {

using nlohmann::json;

constexpr const char* kMark = "\x01";

std::vector<TokenId> quoted(const Tokenizer& tokenizer, const std::string& text) {
  return tokenizer.encode_marked(tokenizer.quote_specials(text, kMark), kMark);
}

class TokenizerTekken : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> load(int model_vocab = 0) {
    dir_.write("tekken.json", document_.dump());
    return load_tokenizer(dir_.path(), {}, model_vocab);
  }
  /// Expects an Error with `words` and the file, and puts the document back.
  void expect_refusal(std::string_view words) {
    const std::string message = error_of([&] { load(); });
    EXPECT_NE(message.find(words), std::string::npos) << message;
    EXPECT_NE(message.find((dir_.path() / "tekken.json").string()), std::string::npos) << message;
    document_ = original_;
  }

  TempDir dir_;
  const json original_ = golden::load("mistral/tekken.json");
  const json golden_ = golden::load("mistral/golden.json");
  json document_ = original_;
};

TEST_F(TokenizerTekken, EncodesMoreTextsAsTheReferenceLibrary) {
  const auto tokenizer = load();
  ASSERT_FALSE(golden_["more"].empty());
  for (const json& golden : golden_["more"]) {
    const std::string text = golden["text"];
    SCOPED_TRACE(text);
    EXPECT_EQ(tokenizer->encode(text, AddSpecial::kYes), golden::ids_of(golden["special"]));
    EXPECT_EQ(quoted(*tokenizer, text), golden::ids_of(golden["quoted"]));
  }
}

TEST_F(TokenizerTekken, TakesQuotedSpecialTokensForTextAsTheReferenceLibrary) {
  const auto tokenizer = load();
  const json texts = golden::load("texts.json");
  ASSERT_EQ(texts.size(), golden_["quoted"].size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string text = golden::text_of(texts[i]);
    if (text.find(kMark) != std::string::npos) continue;  // callers choose a mark that it has not
    SCOPED_TRACE(texts[i].dump());
    EXPECT_EQ(quoted(*tokenizer, text), golden::ids_of(golden_["quoted"][i]));
  }
}

TEST_F(TokenizerTekken, BeginsTextsWithBosAndEndsThemAtEos) {
  const auto tokenizer = load(500);
  EXPECT_EQ(tokenizer->encode("", AddSpecial::kYes), std::vector<TokenId>{1});
  const int named = document_["config"]["default_vocab_size"];
  EXPECT_EQ(tokenizer->vocab(), 500);
  for (TokenId id = 0; id < tokenizer->vocab(); ++id) {
    EXPECT_EQ(tokenizer->is_special(id), id < 16) << id;
    EXPECT_EQ(tokenizer->ends_text(id), id == 2) << id;
    EXPECT_EQ(tokenizer->token_string(id).empty(), id >= named) << id;
  }
  EXPECT_EQ(tokenizer->token_string(15), "<SPECIAL_15>");
  EXPECT_EQ(tokenizer->piece(16 + 0xE9), "\xE9") << "a part of a character";
  EXPECT_EQ(tokenizer->token_string(16 + ' '), "\u0120") << "as in tokenizer.json";
}

TEST_F(TokenizerTekken, GivesOldFilesTheSpecialTokensThatTheyDoNotList) {
  document_.erase("special_tokens");
  document_["config"]["version"] = "v3";
  document_["config"]["default_num_special_tokens"] = 22;
  const int size = document_["config"]["default_vocab_size"];
  document_["config"]["default_vocab_size"] = size + 6;
  const auto tokenizer = load();
  const json& unlisted = golden_["unlisted"];
  for (std::size_t i = 0; i < unlisted.size(); ++i)
    EXPECT_EQ(tokenizer->token_string(static_cast<TokenId>(i)), unlisted[i]);
  EXPECT_EQ(tokenizer->encode("[INST]<SPECIAL_21>A", AddSpecial::kYes),
            (std::vector<TokenId>{1, 3, 21, 22 + 'A'}));
  document_["special_tokens"] = nullptr;
  EXPECT_EQ(load()->token_string(3), "[INST]");
}

TEST_F(TokenizerTekken, GivesWayToTokenizerJsonOnly) {
  load();
  dir_.write("vocab.json", "{}");
  dir_.write("merges.txt", "");
  const int size = document_["config"]["default_vocab_size"];
  EXPECT_EQ(load()->vocab(), size);
  dir_.write("tokenizer.json", golden::load("llama3/tokenizer.json").dump());
  golden::expect_encodings(*load_tokenizer(dir_.path(), {}), "llama3");
}

TEST_F(TokenizerTekken, RefusesAMissingPartByName) {
  for (const char* key : {"config", "vocab"}) {
    document_.erase(key);
    expect_refusal(std::string("the document: '") + key + "' is missing");
  }
  for (const char* key : {"pattern", "default_vocab_size", "default_num_special_tokens"}) {
    document_["config"].erase(key);
    expect_refusal(std::string("config: '") + key + "' is missing");
  }
  for (const char* key : {"rank", "token_bytes"}) {
    document_["vocab"][300].erase(key);
    expect_refusal(std::string("vocab[300]: '") + key + "' is missing");
  }
  document_.erase("special_tokens");
  expect_refusal("special_tokens is missing; files of version 'v13'");
  document_.erase("special_tokens");
  document_["config"].erase("version");
  expect_refusal("config: 'version' is missing");
}

TEST_F(TokenizerTekken, RefusesRanksThatAreNotTheOrderOfTheirList) {
  document_["vocab"][300]["rank"] = 299;
  expect_refusal("vocab[300]: 'rank' is 299 and should be 300");
  document_["vocab"][300]["rank"] = -1;
  expect_refusal("vocab[300]: 'rank' is -1");
  document_["vocab"][300]["rank"] = 0.5;
  expect_refusal("vocab[300]: 'rank' is not an integer");
  document_["special_tokens"][4]["rank"] = 3;
  expect_refusal("special_tokens[4]: 'rank' is 3 and should be 4");
}

TEST_F(TokenizerTekken, RefusesBytesThatItCannotUse) {
  for (const char* bad : {"", "YQ", "YQ=", "Y===", "Y Q=", "Yb==", "Y-==", "=YQ=", "\u00e9=="}) {
    document_["vocab"][300]["token_bytes"] = bad;
    expect_refusal("vocab[300]: 'token_bytes' is '" + std::string(bad) + "', which is no bytes");
  }
  document_["vocab"][300]["token_bytes"] = 7;
  expect_refusal("vocab[300]: 'token_bytes' is not a string");
  document_["vocab"][300]["token_bytes"] = document_["vocab"][299]["token_bytes"];
  expect_refusal("as that of vocab[299]");
  std::string coded;  // 256 bytes of 'b', then one more
  for (int i = 0; i < 85; ++i) coded += "YmJi";
  document_["vocab"][300]["token_bytes"] = coded + "Yg==";
  load();
  document_["vocab"][300]["token_bytes"] = coded + "YmI=";
  expect_refusal("vocab[300]: 'token_bytes' are 257 bytes; the limit is 256");
  document_["vocab"][65]["token_bytes"] = "enp6";
  expect_refusal("none is the byte 65");
}

TEST_F(TokenizerTekken, RefusesSizesThatItsListsDoNotHave) {
  const std::size_t listed = document_["vocab"].size();
  const auto sized = [&](const json& size, const json& specials, std::string_view words) {
    document_["config"]["default_vocab_size"] = size;
    document_["config"]["default_num_special_tokens"] = specials;
    expect_refusal(words);
  };
  sized(listed + 17, 16, "config: 'default_vocab_size' is " + std::to_string(listed + 17));
  sized(15, 16, "config: 'default_vocab_size' is 15");
  sized(-1, 16, "config: 'default_vocab_size' is -1");
  sized(100, 16, "none is the byte");
  sized(300, -1, "config: 'default_num_special_tokens' is -1");
  sized(1000000000, 999999700, "config: 'default_num_special_tokens' is 999999700");
  sized(300, 9, "special_tokens are 10, more than 'default_num_special_tokens'");
  sized("300", 16, "config: 'default_vocab_size' is not an integer");
}

TEST_F(TokenizerTekken, RefusesSpecialTokensThatItCannotUse) {
  document_["special_tokens"][5]["token_str"] = "[INST]";
  expect_refusal("special_tokens[5]: '[INST]' is the text of an earlier one");
  document_["special_tokens"][5]["token_str"] = "<SPECIAL_12>";
  expect_refusal("special_tokens[12]: '<SPECIAL_12>' is the text of an earlier one");
  document_["special_tokens"][5]["token_str"] = "";
  expect_refusal("special_tokens[5]: 'token_str' is empty");
  document_["special_tokens"][5]["token_str"] = std::string(5000, 'x');
  expect_refusal("5000 bytes long");
  for (const std::size_t id : {1u, 2u}) {
    const std::string text = document_["special_tokens"][id]["token_str"];
    document_["special_tokens"][id]["token_str"] = "<other>";
    expect_refusal("special_tokens: '" + text + "'");
  }
  document_["special_tokens"] = "all";
  expect_refusal("special_tokens is not an array");
}

TEST_F(TokenizerTekken, RefusesAPatternThatIsNone) {
  document_["config"]["pattern"] = "(a";
  expect_refusal("reading config: 'pattern'");
}

TEST_F(TokenizerTekken, SurvivesEveryWrongTypeOfEveryPart) {
  document_["vocab"].erase(document_["vocab"].begin() + 260, document_["vocab"].end());
  document_["config"]["default_vocab_size"] = 276;
  const json flat = document_.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    if (pointer.starts_with("/vocab/") && !pointer.starts_with("/vocab/25")) continue;
    for (const json& wrong :
         {json(nullptr), json(-7), json("\x01?"), json::array(), json::object(), json(true)}) {
      document_ = flat.unflatten();
      document_[json::json_pointer(pointer)] = wrong;
      try {
        load()->encode("[INST] it's 12 words", AddSpecial::kYes);
      } catch (const Error&) {
      }
    }
  }
}

TEST(Base64, DecodesWhatItsDefinitionDoesAndNothingElse) {  // RFC 4648, section 10
  using text::from_base64;
  EXPECT_EQ(from_base64(""), "");
  EXPECT_EQ(from_base64("Zg=="), "f");
  EXPECT_EQ(from_base64("Zm8="), "fo");
  EXPECT_EQ(from_base64("Zm9v"), "foo");
  EXPECT_EQ(from_base64("Zm9vYmFy"), "foobar");
  EXPECT_EQ(from_base64("+/8="), "\xFB\xFF");
  for (const char* bad : {"Z", "Zg", "Zg=", "Zh==", "Zm9=", "Z===", "====", "Zg==Zg==", "Zm-_"})
    EXPECT_EQ(from_base64(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace canopy
