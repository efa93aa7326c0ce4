#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/metadata.h"
#include "tests/text/golden.h"

namespace canopy {

/// Returns the metadata of a GGUF file of the byte-level tokenizer in NAME/tokenizer.json.
inline Metadata gguf_metadata(const std::string& name, const std::string& pre) {
  const nlohmann::json document = golden::load(name + "/tokenizer.json");
  const auto& vocabulary = document.at("model").at("vocab");
  std::vector<std::string> tokens(vocabulary.size() + document.at("added_tokens").size());
  std::vector<std::int32_t> types(tokens.size(), 5);
  std::vector<std::string> merges;
  for (const auto& [text, id] : vocabulary.items()) {
    tokens.at(id) = text;
    types.at(id) = 1;
  }
  for (const auto& added : document.at("added_tokens")) {
    tokens.at(added.at("id")) = added.at("content");
    types.at(added.at("id")) = added.at("special").get<bool>() ? 3 : 4;
  }
  for (const auto& merge : document.at("model").at("merges")) {
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
  }
  Metadata metadata;
  metadata.set("tokenizer.ggml.model", std::string("gpt2"));
  metadata.set("tokenizer.ggml.pre", pre);
  metadata.set("tokenizer.ggml.tokens", tokens);
  metadata.set("tokenizer.ggml.token_type", types);
  metadata.set("tokenizer.ggml.merges", merges);
  return metadata;
}

/// The SentencePiece model of spm.json.
inline Metadata spm_metadata() {
  const nlohmann::json spm = golden::load("spm.json");
  Metadata metadata;
  metadata.set("tokenizer.ggml.model", std::string("llama"));
  metadata.set("tokenizer.ggml.tokens", spm.at("tokens").get<std::vector<std::string>>());
  metadata.set("tokenizer.ggml.scores", spm.at("scores").get<std::vector<float>>());
  metadata.set("tokenizer.ggml.token_type", spm.at("token_type").get<std::vector<std::int32_t>>());
  metadata.set("tokenizer.ggml.bos_token_id", std::int64_t{1});
  metadata.set("tokenizer.ggml.eos_token_id", std::int64_t{2});
  return metadata;
}

}  // namespace canopy
