#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/grammar/pattern/expressions.h"
#include "src/grammar/pattern/syntax.h"
#include "src/grammar/schema/formats.h"

namespace canopy::grammar {

/// A range of characters of one class: no expression sets one of them apart from another.
struct ClassRange {
  CodeRange range;
  std::size_t character_class = 0;
};

/// The texts of these lengths in which each of some regular expressions finds something. Characters
/// are code points, as with the flag `u`.
class Language {
 public:
  /// Throws Error as Syntax::add() does, and where an expression asserts something in a place that
  /// depends on what came before.
  Language(std::span<const std::string> patterns, Lengths lengths, PatternWork& work);

  ExpressionId start() const { return start_; }
  Expressions& expressions() { return expressions_; }
  /// Returns all characters, in their order.
  const std::vector<ClassRange>& ranges() const { return source_.ranges; }

 private:
  /// Places in a text where a piece may stand.
  enum class Place : std::uint8_t { kFirst, kLater, kEither };
  struct Facts {
    bool asserts = false;   // has ^, $, or what must or must not follow
    bool may_skip = false;  // has a way through that takes no character
    bool may_take = false;  // has one that takes some
  };
  struct Source {
    Syntax syntax;
    std::vector<std::size_t> roots;  // a piece for each expression
    std::vector<ClassSet> sets;      // of the syntax
    std::vector<ClassRange> ranges;
    std::size_t classes = 0;
  };

  Language(Source source, Lengths lengths, PatternWork& work);
  static Source read(std::span<const std::string> patterns);
  static void divide(Source& source);
  void find_facts();
  ExpressionId found(std::size_t root);
  ExpressionId translated(std::size_t index, ExpressionId then, Place place);
  ExpressionId repeated(const Piece& piece, ExpressionId then, Place place);

  Source source_;
  std::vector<Facts> facts_;  // of the pieces
  Expressions expressions_;
  ExpressionId start_ = 0;
};

}  // namespace canopy::grammar
