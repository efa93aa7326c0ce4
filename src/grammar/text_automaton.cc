#include "src/grammar/text_automaton.h"

#include <array>
#include <vector>

namespace canopy::grammar {
namespace {

StateId hex_digits(Automaton& automaton, int digits, StateId to) {
  for (; digits > 0; --digits)
    to = automaton.bytes(std::array{Edge{'0', '9', Count::kNone, to},
                                    Edge{'A', 'F', Count::kNone, to},
                                    Edge{'a', 'f', Count::kNone, to}});
  return to;
}

/// Adds the states for what may follow a backslash.
StateId escape(Automaton& automaton, StateId between) {
  const StateId two = hex_digits(automaton, 2, between);
  const StateId three = hex_digits(automaton, 1, two);
  const StateId low_half = automaton.bytes(
      std::array{Edge{'C', 'F', Count::kNone, two}, Edge{'c', 'f', Count::kNone, two}});
  const StateId low =
      automaton.spell("\\u", automaton.bytes(std::array{Edge{'D', 'D', Count::kNone, low_half},
                                                        Edge{'d', 'd', Count::kNone, low_half}}));
  const StateId high = hex_digits(automaton, 2, low);
  const StateId behind_d = automaton.bytes(
      std::array{Edge{'0', '7', Count::kNone, two}, Edge{'8', '9', Count::kNone, high},
                 Edge{'A', 'B', Count::kNone, high}, Edge{'a', 'b', Count::kNone, high}});
  const StateId unicode = automaton.bytes(
      std::array{Edge{'0', '9', Count::kNone, three}, Edge{'A', 'C', Count::kNone, three},
                 Edge{'D', 'D', Count::kNone, behind_d}, Edge{'E', 'F', Count::kNone, three},
                 Edge{'a', 'c', Count::kNone, three}, Edge{'d', 'd', Count::kNone, behind_d},
                 Edge{'e', 'f', Count::kNone, three}});
  std::vector<Edge> edges{{'u', 'u', Count::kNone, unicode}};
  for (const char c : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'})
    edges.push_back(
        {static_cast<std::uint8_t>(c), static_cast<std::uint8_t>(c), Count::kNone, between});
  return automaton.bytes(edges);
}

}  // namespace

StateId add_text(Automaton& automaton, Text text) {
  const StateId between = automaton.reserve();
  const auto tail = [&](int first, int last, StateId to) {
    return automaton.range(static_cast<char>(first), static_cast<char>(last), to);
  };
  const StateId one = tail(0x80, 0xBF, between);
  const StateId two = tail(0x80, 0xBF, one);
  const StateId three = tail(0x80, 0xBF, two);
  // The second byte's range keeps out overlong forms, surrogates and what lies beyond U+10FFFF.
  std::vector<Edge> edges{
      {0x20, 0x21, Count::kTake, between}, {'"', '"', Count::kEnough, Automaton::kReturn},
      {0x23, 0x5B, Count::kTake, between}, {0x5D, 0x7F, Count::kTake, between},
      {0xC2, 0xDF, Count::kTake, one},     {0xE0, 0xE0, Count::kTake, tail(0xA0, 0xBF, one)},
      {0xE1, 0xEC, Count::kTake, two},     {0xED, 0xED, Count::kTake, tail(0x80, 0x9F, one)},
      {0xEE, 0xEF, Count::kTake, two},     {0xF0, 0xF0, Count::kTake, tail(0x90, 0xBF, two)},
      {0xF1, 0xF3, Count::kTake, three},   {0xF4, 0xF4, Count::kTake, tail(0x80, 0x8F, two)}};
  if (text == Text::kFree) edges.push_back({'\\', '\\', Count::kTake, escape(automaton, between)});
  automaton.become_bytes(between, edges, text);
  return between;
}

}  // namespace canopy::grammar
