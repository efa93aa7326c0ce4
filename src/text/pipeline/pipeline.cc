#include "src/text/pipeline/pipeline.h"

#include <limits>
#include <utility>

#include "src/base/error.h"
#include "src/base/utf8.h"

namespace canopy::text {

namespace {

std::string without(std::string_view text, std::string_view mark) {
  std::string rest(text);
  if (!mark.empty())
    for (std::size_t at = 0; (at = rest.find(mark, at)) != std::string::npos;)
      rest.erase(at, mark.size());
  return rest;
}

/// Appends `text` with the mark after each character: no token can be found in it, nor begin in it.
void append_cut(std::string& out, std::string_view text, std::string_view mark) {
  while (!text.empty()) {
    const std::size_t bytes = utf8_step(text).bytes;
    out.append(text.substr(0, bytes)).append(mark);
    text.remove_prefix(bytes);
  }
}

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(Pipeline pipeline) : p_(std::move(pipeline)) {}

  std::vector<TokenId> encode(std::string_view text, AddSpecial add,
                              const std::stop_token& stop) const override {
    std::vector<TokenId> ids;
    if (add == AddSpecial::kYes) ids = p_.before;
    append(ids, text, {}, stop);
    if (add == AddSpecial::kYes) ids.insert(ids.end(), p_.after.begin(), p_.after.end());
    return ids;
  }

  std::vector<TokenId> encode_marked(std::string_view text, std::string_view mark,
                                     const std::stop_token& stop) const override {
    std::vector<TokenId> ids;
    append(ids, text, mark, stop);
    return ids;
  }

  std::string quote_specials(std::string_view bytes, std::string_view mark) const override {
    std::string text = to_utf8(bytes);
    for (const AddedTokens* added : {&p_.raw_added, &p_.normalized_added}) {
      std::string quoted;
      for (const Segment& segment : added->split(text)) {
        const bool special = segment.token && p_.tokens.at(*segment.token).special;
        if (special)
          append_cut(quoted, segment.text, mark);
        else
          quoted += segment.text;
      }
      text = std::move(quoted);
    }
    return text;
  }

  std::string_view piece(TokenId id) const override {
    const Token& token = p_.tokens.at(id);
    return token.special ? std::string_view() : token.piece;
  }

  std::string decode(std::span<const TokenId> ids, AddSpecial specials) const override {
    std::string bytes;
    bool first = true;
    for (const TokenId id : ids) {
      const Token& token = p_.tokens.at(id);
      if (token.special && specials == AddSpecial::kNo) continue;
      const std::string& drop = p_.text_start.drop_from_first;
      if (first && !drop.empty() && token.text.find(drop) != std::string::npos)
        bytes += Pattern::literal(drop).replace_all(token.text, "", Bounds(token.text.size()));
      else
        bytes += token.piece;
      first = false;
    }
    return strip(p_.text_start.strip, to_utf8(bytes));
  }

  std::string_view token_string(TokenId id) const override { return p_.tokens.at(id).text; }
  bool is_special(TokenId id) const override { return p_.tokens.at(id).special; }
  bool ends_text(TokenId id) const override { return p_.tokens.at(id).ends_text; }
  int vocab() const override { return static_cast<int>(p_.tokens.size()); }

 private:
  void append(std::vector<TokenId>& ids, std::string_view bytes, std::string_view mark,
              const std::stop_token& stop) const {
    const std::string text = to_utf8(bytes);
    // Byte-level doubles a text at most, Metaspace triples it; positions are 32 bits.
    require(text.size() <= std::numeric_limits<std::uint32_t>::max() / 4,
            "a text of more than 1 GiB cannot be encoded at once");
    Bpe::Scratch scratch;
    const Bounds bounds(text.size(), stop);
    for (const Segment& raw : p_.raw_added.split(text)) {
      if (raw.token) {
        ids.push_back(*raw.token);
        continue;
      }
      const std::string normalized = normalize(p_.normalizer, raw.text, bounds);
      for (const Segment& segment : p_.normalized_added.split(normalized)) {
        if (segment.token) {
          ids.push_back(*segment.token);
          continue;
        }
        const bool first =
            raw.text.data() == text.data() && segment.text.data() == normalized.data();
        const std::string plain = without(segment.text, mark);
        if (plain.empty()) continue;
        Pieces pieces{plain, {{0, plain.size()}}, first};
        pre_tokenize(p_.pre_tokenizer, pieces, bounds);
        for (const Span& span : pieces.spans) {
          bounds.check(0);
          p_.model.encode(std::string_view(pieces.text).substr(span.begin, span.end - span.begin),
                          scratch, ids);
        }
      }
    }
  }

  const Pipeline p_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(Pipeline pipeline) {
  return std::make_unique<PipelineTokenizer>(std::move(pipeline));
}

}  // namespace canopy::text
