#include "src/grammar/pattern/language.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "src/base/error.h"

namespace canopy::grammar {
namespace {

[[noreturn]] void refuse(const Piece& piece, const std::string& what) {
  throw Error("the pattern has " + what + ", which is not supported, at character " +
              std::to_string(piece.place));
}

}  // namespace

Language::Language(std::span<const std::string> patterns, Lengths lengths, PatternWork& work)
    : Language(read(patterns), lengths, work) {}

Language::Language(Source source, Lengths lengths, PatternWork& work)
    : source_(std::move(source)), expressions_(source_.classes, work) {
  find_facts();
  start_ = expressions_.repeated(expressions_.any(), lengths.shortest,
                                 lengths.longest == kUncounted ? kEndless : lengths.longest);
  for (const std::size_t root : source_.roots) start_ = expressions_.both(start_, found(root));
}

Language::Source Language::read(std::span<const std::string> patterns) {
  Source source;
  for (const std::string& pattern : patterns) source.roots.push_back(source.syntax.add(pattern));
  divide(source);
  return source;
}

/// Makes one class of characters that are in the same sets.
void Language::divide(Source& source) {
  const std::vector<CodePoints>& sets = source.syntax.sets;
  std::vector<char32_t> begins{0};
  for (const CodePoints& set : sets)
    for (const CodeRange& range : set.ranges()) {
      begins.push_back(range.first);
      begins.push_back(range.last + 1);
    }
  std::ranges::sort(begins);
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  source.sets.resize(sets.size());
  std::map<std::vector<bool>, std::size_t> classes;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const char32_t end = i + 1 < begins.size() ? begins[i + 1] : kLastCodePoint + 1;
    const CodePoints same({{begins[i], end - 1}});
    for (const CodeRange& range : same.ranges()) {
      std::vector<bool> has(sets.size());
      for (std::size_t set = 0; set < sets.size(); ++set) {
        const auto& ranges = sets[set].ranges();
        const auto after = std::ranges::upper_bound(ranges, range.first, {}, &CodeRange::first);
        has[set] = after != ranges.begin() && std::prev(after)->last >= range.first;
      }
      const auto [entry, is_new] = classes.try_emplace(has, classes.size());
      if (classes.size() > kMostPatternClasses)
        throw Error("the pattern sets apart more than " + std::to_string(kMostPatternClasses) +
                    " kinds of characters");
      source.ranges.push_back({.range = range, .character_class = entry->second});
      for (std::size_t set = 0; is_new && set < sets.size(); ++set)
        if (has[set]) source.sets[set].set(entry->second);
    }
  }
  source.classes = classes.size();
}

void Language::find_facts() {
  for (const Piece& piece : source_.syntax.pieces) {  // inner ones come first
    Facts facts;
    const bool one_of = piece.kind == Piece::Kind::kChoice;
    facts.may_skip = piece.kind != Piece::Kind::kCharacter && !one_of;
    facts.may_take = piece.kind == Piece::Kind::kCharacter;
    for (const std::size_t inner : piece.inner) {
      const Facts& inside = facts_[inner];
      facts.asserts |= inside.asserts;
      facts.may_take |= inside.may_take;
      facts.may_skip =
          one_of ? facts.may_skip || inside.may_skip : facts.may_skip && inside.may_skip;
    }
    switch (piece.kind) {
      case Piece::Kind::kRepeated:
        facts.may_skip |= piece.fewest == 0;
        facts.may_take &= piece.most > 0;
        break;
      case Piece::Kind::kBegin:
      case Piece::Kind::kEnd:
      case Piece::Kind::kAhead:
      case Piece::Kind::kNotAhead:
        facts = {.asserts = true, .may_skip = true};
        break;
      case Piece::Kind::kCharacter:
      case Piece::Kind::kSequence:
      case Piece::Kind::kChoice:
        break;
    }
    facts_.push_back(facts);
  }
}

/// Returns the texts in which the expression finds something somewhere.
ExpressionId Language::found(std::size_t root) {
  Expressions& e = expressions_;
  const ExpressionId first = translated(root, e.everything(), Place::kFirst);
  const ExpressionId later = translated(root, e.everything(), Place::kLater);
  if (first == later) return e.sequence(e.everything(), first);
  return e.either(std::array{first, e.sequence(e.any(), e.sequence(e.everything(), later))});
}

/// Returns what the piece takes, and then a text of `then`.
ExpressionId Language::translated(std::size_t index, ExpressionId then, Place place) {
  Expressions& e = expressions_;
  const Piece& piece = source_.syntax.pieces[index];
  switch (piece.kind) {
    case Piece::Kind::kCharacter:
      return e.sequence(e.one_of(source_.sets[piece.set]), then);
    case Piece::Kind::kSequence: {
      std::vector<Place> places;
      for (const std::size_t inner : piece.inner) {
        places.push_back(place);
        const Facts& facts = facts_[inner];
        if (!facts.may_skip) place = Place::kLater;
        if (facts.may_skip && facts.may_take && place == Place::kFirst) place = Place::kEither;
      }
      for (std::size_t i = piece.inner.size(); i-- > 0;)
        then = translated(piece.inner[i], then, places[i]);
      return then;
    }
    case Piece::Kind::kChoice: {
      std::vector<ExpressionId> choices;
      for (const std::size_t inner : piece.inner) choices.push_back(translated(inner, then, place));
      return e.either(choices);
    }
    case Piece::Kind::kRepeated:
      return repeated(piece, then, place);
    case Piece::Kind::kBegin:
      if (place == Place::kEither) refuse(piece, "\"^\" after something that may be empty");
      return place == Place::kFirst ? then : e.nothing();
    case Piece::Kind::kEnd:
      return e.both(e.empty(), then);
    case Piece::Kind::kAhead:
      return e.both(translated(piece.inner[0], e.everything(), place), then);
    case Piece::Kind::kNotAhead:
      return e.both(e.others(translated(piece.inner[0], e.everything(), place)), then);
  }
  return e.nothing();
}

ExpressionId Language::repeated(const Piece& piece, ExpressionId then, Place place) {
  Expressions& e = expressions_;
  const std::size_t body = piece.inner[0];
  if (!facts_[body].asserts)
    return e.sequence(
        e.repeated(translated(body, e.empty(), Place::kLater), piece.fewest, piece.most), then);
  if (piece.most > 1) refuse(piece, "\"^\", \"$\" or a look ahead in a group that is repeated");
  if (piece.most == 0) return then;
  const ExpressionId once = translated(body, then, place);
  return piece.fewest == 1 ? once : e.either(std::array{once, then});
}

}  // namespace canopy::grammar
