#pragma once
#include <bitset>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "src/grammar/limits.h"

namespace canopy::grammar {

/// A set of classes of characters.
using ClassSet = std::bitset<kMostPatternClasses>;

using ExpressionId = std::uint32_t;

/// No bound on repetitions.
inline constexpr std::uint32_t kEndless = ~std::uint32_t{0};

/// Steps that the patterns of a schema have taken so far. Throws Error where they are more than
/// kMostPatternWork.
class PatternWork {
 public:
  void add(std::size_t steps);

 private:
  std::size_t steps_ = 0;
};

/// Regular expressions over classes of characters, with intersection and complement; equal ones
/// are made once. What makes them adds to the work.
/// Source: Brzozowski, "Derivatives of Regular Expressions", J. ACM 11 (1964).
class Expressions {
 public:
  /// Makes expressions over characters of `classes` classes.
  Expressions(std::size_t classes, PatternWork& work);

  // All texts of each kind.
  ExpressionId nothing() const { return 0; }  // no text
  ExpressionId empty() const { return 1; }    // the empty text
  ExpressionId everything() const { return 2; }
  ExpressionId any() const { return 3; }  // one character
  ExpressionId one_of(const ClassSet& classes);
  ExpressionId sequence(ExpressionId first, ExpressionId then);
  ExpressionId either(std::span<const ExpressionId> choices);
  ExpressionId both(ExpressionId one, ExpressionId other);
  ExpressionId others(ExpressionId than);
  ExpressionId repeated(ExpressionId body, std::uint32_t fewest, std::uint32_t most);

  bool has_empty(ExpressionId id) const { return nodes_[id].empty; }
  /// Returns the texts that may follow a character of this class.
  ExpressionId after(ExpressionId id, std::size_t character_class);

 private:
  enum class Kind : std::uint8_t {
    kNothing,
    kEmpty,
    kOneOf,     // of set `first`
    kSequence,  // `first`, `second`
    kEither,    // of `parts`
    kBoth,      // all of `parts`
    kOthers,    // than `first`
    kRepeated,  // `first`, `fewest` to `most` times
  };
  struct Node {
    Kind kind = Kind::kNothing;
    bool empty = false;
    ExpressionId first = 0, second = 0;
    std::uint32_t fewest = 0, most = 0;
    std::vector<ExpressionId> parts = {};
  };

  ExpressionId keep(Node node);
  ExpressionId join(Kind kind, std::span<const ExpressionId> joined);
  ExpressionId derive(ExpressionId id, std::size_t character_class);

  std::vector<Node> nodes_;
  std::vector<ClassSet> sets_;
  std::map<std::vector<std::uint32_t>, ExpressionId> kept_;
  std::unordered_map<std::uint64_t, ExpressionId> after_;  // by expression and class
  PatternWork& work_;
};

}  // namespace canopy::grammar
