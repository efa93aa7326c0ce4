// Chooses the files of a directory that describe its tokenizer, and reads where texts end.
#include <algorithm>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/utf8.h"
#include "src/text/json_members.h"
#include "src/text/pipeline/pipeline.h"

namespace canopy::text {

using nlohmann::json;

namespace {

/// Marks the ids of an "eos_token_id": one, or a list, or none (null).
void mark_ends(const json& ids, TokenTable& tokens) {
  const auto mark = [&](const json& id) { tokens.end_at(integer(id, "eos_token_id")); };
  if (ids.is_array())
    std::for_each(ids.begin(), ids.end(), mark);
  else
    mark(ids);
}

void read_ends(const std::filesystem::path& directory, const Metadata& config, TokenTable& tokens) {
  if (const auto* id = config.find<std::int64_t>("eos_token_id")) tokens.end_at(*id);
  if (const auto* ids = config.find<std::vector<std::int32_t>>("eos_token_id"))
    for (const std::int32_t id : *ids) tokens.end_at(id);
  if (const auto file = directory / "generation_config.json"; std::filesystem::exists(file)) {
    const json document = read_json(file, kMostConfigBytes, FileKind::kOfModel);
    in_context("reading " + file.string(), [&] {
      if (const json* ids = optional_member(document, "eos_token_id", "the document"))
        mark_ends(*ids, tokens);
    });
  }
  if (const auto file = directory / "tokenizer_config.json"; std::filesystem::exists(file)) {
    const json document = read_json(file, kMostConfigBytes, FileKind::kOfModel);
    in_context("reading " + file.string(), [&] {
      const json* eos = optional_member(document, "eos_token", "the document");
      if (!eos) return;
      const std::string& text = eos->is_string() ? eos->get_ref<const std::string&>()
                                                 : string_member(*eos, "content", "eos_token");
      const auto found = std::find_if(tokens.begin(), tokens.end(),
                                      [&](const Token& token) { return token.text == text; });
      if (found == tokens.end()) throw Error("eos_token " + in_quotes(text) + " is no token");
      found->ends_text = true;
    });
  }
}

Pipeline read_pipeline(const std::filesystem::path& directory) {
  const auto has = [&](const char* name) { return std::filesystem::exists(directory / name); };
  if (has("tokenizer.json")) return pipeline_from_json(directory / "tokenizer.json");
  if (has("tekken.json")) return pipeline_from_tekken(directory / "tekken.json");
  if (has("vocab.json") && has("merges.txt")) return pipeline_from_vocab_and_merges(directory);
  throw Error(directory.string() +
              " has neither tokenizer.json nor tekken.json nor vocab.json and merges.txt; save the "
              "first with "
              "transformers' AutoTokenizer(...).save_pretrained()");
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_directory(const std::filesystem::path& directory,
                                                    const Metadata& config,
                                                    std::size_t model_vocab) {
  Pipeline pipeline = read_pipeline(directory);
  pipeline.tokens.pad_to(model_vocab);
  read_ends(directory, config, pipeline.tokens);
  return make_tokenizer(std::move(pipeline));
}

}  // namespace canopy::text
