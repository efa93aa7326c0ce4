#pragma once
#include <cstddef>

namespace canopy::jinja {

/// Limits of what one template may ask of the machine. Templates come from strangers; the reasons
/// count what published ones and long conversations need.
struct Limits {
  /// Counts of evaluations, turns of loops, values made, and what is copied: 256 bytes or 4 items;
  /// of what is read by character, 8 bytes. A thousand messages of 800 bytes take less than 3
  /// million in most of 178 published templates, 12 million in those that walk through a text by
  /// character. Where every step is a slow one, these take about ten seconds.
  std::size_t steps = 50'000'000;
  /// Bounds the text that is made. A prompt of a million tokens has about 4 MiB.
  std::size_t output_bytes = 32u << 20;
  /// Bounds the strings, lists and dicts that the template made and still holds.
  std::size_t memory_bytes = 128u << 20;
};

/// The longest of 178 published templates has 20 KiB. Bounds the memory of tokens and syntax tree.
inline constexpr std::size_t kMostSourceBytes = 256u << 10;
/// Brackets, operators and blocks inside each other, as they are parsed; published templates have
/// less than 20. Each level takes about a kilobyte of the stack.
inline constexpr int kMostNesting = 100;
/// Operators and suffixes in one expression: a chain of them is as deep a tree. Published templates
/// have less than 60.
inline constexpr int kMostParts = 500;
/// Evaluations inside each other, calls of macros counted with what they run. Tools' schemas that
/// are written out by recursive macros need about 10 for each level of theirs.
inline constexpr int kMostDepth = 1000;
/// Lists and dicts inside each other. What comes as JSON has 64 levels at most.
inline constexpr int kMostValueDepth = 100;
/// Items of range(), as Jinja's sandbox has it.
inline constexpr std::size_t kMostRange = 100'000;

}  // namespace canopy::jinja
