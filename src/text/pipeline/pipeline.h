#pragma once
#include <memory>
#include <vector>

#include "src/text/pipeline/added_tokens.h"
#include "src/text/pipeline/bpe.h"
#include "src/text/pipeline/decoder.h"
#include "src/text/pipeline/normalizer.h"
#include "src/text/pipeline/pretokenizer.h"
#include "src/text/token_table.h"
#include "src/text/tokenizer.h"

namespace canopy::text {

/// The parts of a tokenizer, as plain data that the readers of both formats fill in.
///   text --raw_added--> normalizer --normalized_added--> pre_tokenizer --> model --> ids
struct Pipeline {
  /// `entries`: how many tokens the file lists.
  explicit Pipeline(std::size_t entries) : tokens(entries) {}

  TokenTable tokens;
  AddedTokens raw_added;  // found before normalization
  Normalizer normalizer;
  AddedTokens normalized_added;  // found after it
  PreTokenizer pre_tokenizer;
  Bpe model;
  std::vector<TokenId> before, after;  // the tokens that AddSpecial::kYes puts around a text
  TextStart text_start;
};
std::unique_ptr<Tokenizer> make_tokenizer(Pipeline pipeline);

/// The readers, as load_tokenizer() has them. Both throw Error naming the part.
std::unique_ptr<Tokenizer> tokenizer_from_directory(const std::filesystem::path& directory,
                                                    const Metadata& config,
                                                    std::size_t model_vocab);
std::unique_ptr<Tokenizer> tokenizer_from_gguf(const Metadata& metadata, std::size_t model_vocab);

/// Read the files of a directory, without what other files say about ends of texts. Throw Error
/// naming the file and the part.
Pipeline pipeline_from_json(const std::filesystem::path& file);
Pipeline pipeline_from_tekken(const std::filesystem::path& file);
Pipeline pipeline_from_vocab_and_merges(const std::filesystem::path& directory);

}  // namespace canopy::text
