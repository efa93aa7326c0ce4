#include "src/text/pipeline/pretokenizer.h"

#include <utility>

#include "src/text/pipeline/byte_level.h"

namespace canopy::text {

namespace {

/// Covers [0, size) with parts that alternate between matches and what lies between them.
struct Part {
  Span span;
  bool match;
};
void cover(const std::vector<Span>& matches, std::size_t size, bool invert,
           std::vector<Part>& parts) {
  parts.clear();
  std::size_t from = 0;
  for (const Span& match : matches) {
    if (from < match.begin) parts.push_back({{from, match.begin}, invert});
    parts.push_back({match, !invert});
    from = match.end;
  }
  if (from < size) parts.push_back({{from, size}, invert});
}

/// Joins neighbouring parts, or drops them, as the behaviour asks.
void arrange(Split::Behavior behavior, std::vector<Part>& parts) {
  using Behavior = Split::Behavior;
  std::vector<Part> out;
  out.reserve(parts.size());
  for (const Part& part : parts) {
    const bool after_other = !out.empty() && out.back().match != part.match;
    const bool after_same = !out.empty() && out.back().match == part.match;
    bool join = false;
    switch (behavior) {
      case Behavior::kRemoved:
        if (part.match) continue;
        break;
      case Behavior::kIsolated:
        break;
      case Behavior::kMergedWithPrevious:
        join = part.match && after_other;
        break;
      case Behavior::kMergedWithNext:
        join = !part.match && after_other;
        break;
      case Behavior::kContiguous:
        join = after_same;
        break;
    }
    if (join) {
      out.back().span.end = part.span.end;
      // A joined pair takes no third part, except a contiguous run.
      out.back().match = part.match;
    } else {
      out.push_back(part);
    }
  }
  parts = std::move(out);
}

void apply(const Split& split, Pieces& pieces, const Bounds& bounds) {
  std::vector<Span> out, matches;
  std::vector<Part> parts;
  out.reserve(pieces.spans.size());
  for (const Span& piece : pieces.spans) {
    split.pattern.find_all(
        std::string_view(pieces.text).substr(piece.begin, piece.end - piece.begin), matches,
        bounds);
    cover(matches, piece.end - piece.begin, split.invert, parts);
    arrange(split.behavior, parts);
    for (const Part& part : parts)
      if (part.span.begin < part.span.end)
        out.push_back({piece.begin + part.span.begin, piece.begin + part.span.end});
  }
  pieces.spans = std::move(out);
}

/// Rewrites each piece with rewrite(piece, out), which appends to a new text.
template <class Rewrite>
void rewrite_each(Pieces& pieces, const Bounds& bounds, Rewrite rewrite) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 4);
  for (Span& piece : pieces.spans) {
    const std::size_t begin = text.size();
    rewrite(std::string_view(pieces.text).substr(piece.begin, piece.end - piece.begin), text);
    piece = {begin, text.size()};
    bounds.check(text.size());
  }
  pieces.text = std::move(text);
}

void apply(const PrefixSpace&, Pieces& pieces, const Bounds& bounds) {
  rewrite_each(pieces, bounds, [](std::string_view piece, std::string& out) {
    if (piece[0] != ' ') out += ' ';
    out += piece;
  });
}

void apply(const ByteLevel&, Pieces& pieces, const Bounds& bounds) {
  rewrite_each(pieces, bounds, [](std::string_view piece, std::string& out) {
    for (const char c : piece) out += byte_to_visible(static_cast<unsigned char>(c));
  });
}

void apply(const Metaspace& step, Pieces& pieces, const Bounds& bounds) {
  std::string text;
  std::vector<Span> out;
  text.reserve(pieces.text.size() + pieces.text.size() / 4);
  for (const Span& piece : pieces.spans) {
    const std::string_view word(&pieces.text[piece.begin], piece.end - piece.begin);
    std::size_t begin = text.size();
    const bool wanted =
        step.prepend == Metaspace::Scheme::kAlways ||
        (step.prepend == Metaspace::Scheme::kFirst && pieces.begins_input && piece.begin == 0);
    if (wanted && word[0] != ' ' && !word.starts_with(step.replacement)) text += step.replacement;
    for (std::size_t i = 0; i < word.size(); ++i) {
      const bool space = word[i] == ' ';
      if (step.split && begin < text.size() &&
          (space || word.substr(i).starts_with(step.replacement))) {
        out.push_back({begin, text.size()});
        begin = text.size();
      }
      if (space)
        text += step.replacement;
      else
        text += word[i];
    }
    out.push_back({begin, text.size()});
    bounds.check(text.size());
  }
  pieces.text = std::move(text);
  pieces.spans = std::move(out);
}

}  // namespace

void pre_tokenize(const PreTokenizer& steps, Pieces& pieces, const Bounds& bounds) {
  for (const auto& step : steps) std::visit([&](const auto& s) { apply(s, pieces, bounds); }, step);
}

Split gpt2_split() {
  return {Pattern::regex(
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)")};
}

Split digit_split(Split::Behavior behavior) { return {Pattern::regex(R"(\p{N})"), behavior}; }

}  // namespace canopy::text
