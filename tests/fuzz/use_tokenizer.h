#pragma once
// The use of a tokenizer in the targets that read one.
#include <algorithm>

#include "src/base/utf8.h"
#include "src/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace canopy::fuzz {

/// Encodes texts and decodes what comes of them: every token is one, every text valid.
inline void use(const Tokenizer& tokenizer) {
  expect(tokenizer.vocab() >= 0, "a vocabulary");
  for (const std::string_view text :
       {std::string_view("Hello, world!\n  caf\u00e9 123 <s>\u2581\U0001f600"), std::string_view(),
        std::string_view("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"),
        std::string_view("\xff\xc3 \x00 a", 6)}) {
    reads([&] {
      const auto tokens = tokenizer.encode(text, AddSpecial::kYes);
      for (const TokenId token : tokens)
        expect(token >= 0 && token < tokenizer.vocab(), "tokens of the vocabulary");
      expect(is_utf8(tokenizer.decode(tokens, AddSpecial::kYes)), "a text in UTF-8");
      TextStream stream(tokenizer);
      for (const TokenId token : tokens) expect(is_utf8(stream.push(token)), "a part in UTF-8");
      expect(is_utf8(stream.flush()), "an end in UTF-8");
    });
    reads([&] { tokenizer.encode_marked(tokenizer.quote_specials(text, "\x01"), "\x01"); });
  }
  for (TokenId token = 0; token < std::min(tokenizer.vocab(), 300); ++token) {
    tokenizer.piece(token);
    tokenizer.token_string(token);
  }
}

}  // namespace canopy::fuzz
