#include "src/text/tokenizer.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/text/pipeline/pipeline.h"

namespace canopy {

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& model,
                                          const Metadata& metadata, int model_vocab) {
  const auto rows = static_cast<std::size_t>(model_vocab);
  if (std::filesystem::is_directory(model))
    return text::tokenizer_from_directory(model, metadata, rows);
  return in_context("reading the tokenizer of " + model.string(),
                    [&] { return text::tokenizer_from_gguf(metadata, rows); });
}

std::optional<std::string> vocabulary_mismatch(const Tokenizer& target, const Tokenizer& draft) {
  const auto string_of = [](const Tokenizer& tokenizer, TokenId id) {
    return id < tokenizer.vocab() ? tokenizer.token_string(id) : std::string_view();
  };
  const auto shown = [](std::string_view s) { return s.empty() ? "unused" : in_quotes(s); };
  for (TokenId id = 0; id < std::max(target.vocab(), draft.vocab()); ++id) {
    const std::string_view here = string_of(target, id), there = string_of(draft, id);
    if (here != there)
      return "token " + std::to_string(id) + " is " + shown(here) + " in the target and " +
             shown(there) + " in the draft";
  }
  return std::nullopt;
}

std::string TextStream::push(TokenId token) {
  pending_ += tokenizer_->piece(token);
  std::string out;
  pending_.erase(0, append_whole(out, pending_));
  return out;
}

std::string TextStream::flush() { return to_utf8(std::exchange(pending_, {})); }

}  // namespace canopy
