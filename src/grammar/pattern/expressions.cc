#include "src/grammar/pattern/expressions.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "src/base/error.h"

namespace canopy::grammar {
namespace {

/// Steps that a kept node or derivative counts as, by its memory: about ten bytes for a step.
constexpr std::size_t kWorkOfANode = 12, kWorkOfADerivative = 4;

}  // namespace

void PatternWork::add(std::size_t steps) {
  steps_ += steps;
  if (steps_ > kMostPatternWork)
    throw Error("the patterns of the schema take too many steps: simpler or fewer are needed");
}

Expressions::Expressions(std::size_t classes, PatternWork& work) : work_(work) {
  keep({.kind = Kind::kNothing});
  keep({.kind = Kind::kEmpty, .empty = true});
  // Everything is any character any number of times, which are made in the other order.
  ClassSet all;
  for (std::size_t i = 0; i < classes; ++i) all.set(i);
  sets_.push_back(all);
  nodes_.push_back({.kind = Kind::kRepeated, .empty = true, .first = 3, .most = kEndless});
  kept_[{static_cast<std::uint32_t>(Kind::kRepeated), 3, 0, 0, kEndless}] = 2;
  keep({.kind = Kind::kOneOf, .first = 0});
}

ExpressionId Expressions::keep(Node node) {
  std::vector<std::uint32_t> key{static_cast<std::uint32_t>(node.kind), node.first, node.second,
                                 node.fewest, node.most};
  key.insert(key.end(), node.parts.begin(), node.parts.end());
  work_.add(key.size());
  const auto [entry, is_new] =
      kept_.try_emplace(std::move(key), static_cast<ExpressionId>(nodes_.size()));
  if (is_new) {
    work_.add(kWorkOfANode);
    nodes_.push_back(std::move(node));
  }
  return entry->second;
}

ExpressionId Expressions::one_of(const ClassSet& classes) {
  if (classes.none()) return nothing();
  const auto known = std::ranges::find(sets_, classes);
  const auto set = static_cast<std::uint32_t>(known - sets_.begin());
  if (known == sets_.end()) sets_.push_back(classes);
  return keep({.kind = Kind::kOneOf, .first = set});
}

ExpressionId Expressions::sequence(ExpressionId first, ExpressionId then) {
  if (first == nothing() || then == nothing()) return nothing();
  if (first == empty()) return then;
  if (then == empty()) return first;
  if (first == everything() && then == everything()) return first;
  if (nodes_[first].kind == Kind::kSequence) {
    const Node node = nodes_[first];
    return sequence(node.first, sequence(node.second, then));
  }
  return keep({.kind = Kind::kSequence,
               .empty = has_empty(first) && has_empty(then),
               .first = first,
               .second = then});
}

ExpressionId Expressions::either(std::span<const ExpressionId> choices) {
  return join(Kind::kEither, choices);
}

ExpressionId Expressions::both(ExpressionId one, ExpressionId other) {
  return join(Kind::kBoth, std::array{one, other});
}

/// Joins parts, which become flat, ordered and different; their sets become one.
ExpressionId Expressions::join(Kind kind, std::span<const ExpressionId> joined) {
  const bool either = kind == Kind::kEither;
  const ExpressionId neutral = either ? nothing() : everything();
  const ExpressionId decides = either ? everything() : nothing();
  std::vector<ExpressionId> parts;
  ClassSet set;
  bool has_set = false;
  const auto add = [&](ExpressionId id) {
    const Node& node = nodes_[id];
    if (node.kind != Kind::kOneOf) return parts.push_back(id);
    const ClassSet& own = sets_[node.first];
    set = !has_set ? own : either ? set | own : set & own;
    has_set = true;
  };
  for (const ExpressionId id : joined) {
    if (nodes_[id].kind != kind) {
      add(id);
      continue;
    }
    for (const ExpressionId part : nodes_[id].parts) add(part);
  }
  if (has_set) parts.push_back(one_of(set));
  std::ranges::sort(parts);
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  std::erase(parts, neutral);
  if (std::ranges::find(parts, decides) != parts.end()) return decides;
  if (parts.empty()) return neutral;
  if (parts.size() == 1) return parts[0];
  const auto has = [&](ExpressionId id) { return has_empty(id); };
  const bool empty = either ? std::ranges::any_of(parts, has) : std::ranges::all_of(parts, has);
  // If the empty text is all that one part has, the others decide about it alone.
  if (!either && std::ranges::find(parts, this->empty()) != parts.end())
    return empty ? this->empty() : nothing();
  return keep({.kind = kind, .empty = empty, .parts = std::move(parts)});
}

ExpressionId Expressions::others(ExpressionId than) {
  if (than == nothing()) return everything();
  if (than == everything()) return nothing();
  if (nodes_[than].kind == Kind::kOthers) return nodes_[than].first;
  return keep({.kind = Kind::kOthers, .empty = !has_empty(than), .first = than});
}

ExpressionId Expressions::repeated(ExpressionId body, std::uint32_t fewest, std::uint32_t most) {
  if (most == 0 || body == empty()) return empty();
  if (body == nothing()) return fewest == 0 ? empty() : nothing();
  if (has_empty(body)) fewest = 0;  // the rest of them may be empty
  if (fewest == 1 && most == 1) return body;
  return keep({.kind = Kind::kRepeated,
               .empty = fewest == 0,
               .first = body,
               .fewest = fewest,
               .most = most});
}

ExpressionId Expressions::after(ExpressionId id, std::size_t character_class) {
  const std::uint64_t key = std::uint64_t{id} * kMostPatternClasses + character_class;
  if (const auto known = after_.find(key); known != after_.end()) return known->second;
  const ExpressionId made = derive(id, character_class);
  work_.add(kWorkOfADerivative);
  after_.emplace(key, made);
  return made;
}

ExpressionId Expressions::derive(ExpressionId id, std::size_t character_class) {
  const Node node = nodes_[id];  // a copy: more are made
  switch (node.kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      return nothing();
    case Kind::kOneOf:
      return sets_[node.first][character_class] ? empty() : nothing();
    case Kind::kSequence: {
      const ExpressionId went_on = sequence(after(node.first, character_class), node.second);
      if (!has_empty(node.first)) return went_on;
      return either(std::array{went_on, after(node.second, character_class)});
    }
    case Kind::kEither:
    case Kind::kBoth: {
      std::vector<ExpressionId> parts;
      for (const ExpressionId part : node.parts) parts.push_back(after(part, character_class));
      return join(node.kind, parts);
    }
    case Kind::kOthers:
      return others(after(node.first, character_class));
    case Kind::kRepeated:
      return sequence(after(node.first, character_class),
                      repeated(node.first, node.fewest > 0 ? node.fewest - 1 : 0,
                               node.most == kEndless ? kEndless : node.most - 1));
  }
  return nothing();
}

}  // namespace canopy::grammar
