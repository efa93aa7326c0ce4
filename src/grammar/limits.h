#pragma once
#include <cstddef>
#include <cstdint>

namespace canopy::grammar {

// Schemas come from strangers. Each bound is far above what published schemas need, and keeps what
// one of them may cost in memory and time.

/// Objects and arrays inside each other in the text: what parse_json() reads (src/base/json.h). The
/// mask allows no deeper ones.
inline constexpr int kMostLevels = 64;
/// Objects and lists inside each other in the schema itself; its readers recurse.
inline constexpr int kMostSchemaLevels = 64;
/// States and transitions of an automaton, about 40 bytes each. A key takes a state for each
/// byte, a bounded number some 200.
inline constexpr std::size_t kMostStates = 1u << 18;
/// Different targets of `$ref`: each is looked up by a search through the schema.
inline constexpr std::size_t kMostReferences = 1024;
/// Named properties of one object, those of `required` too. All of them may be the next, each a
/// reading of its own.
inline constexpr std::size_t kMostProperties = 256;
/// Characters and items that a schema may ask for or allow by number.
inline constexpr std::uint32_t kMostCount = 1u << 30;
/// Readings of one text that are followed at once. Where anyOf makes more, the later ones are
/// dropped; what is allowed is still what the schema accepts.
inline constexpr std::size_t kMostReadings = 512;
/// Moves between two bytes, for all readings together: twice what 256 optional properties take for
/// each of several alternatives.
inline constexpr std::size_t kMostMoves = 4096;
/// Bytes of a regular expression, groups inside each other, and kinds of characters that it sets
/// apart.
inline constexpr std::size_t kMostPatternBytes = 4096;
inline constexpr int kMostPatternLevels = 64;
inline constexpr std::size_t kMostPatternClasses = 256;
/// States of the strings that a schema's patterns leave in one place, and steps to find those of
/// all its places: half a second and 50 MB at most.
inline constexpr std::size_t kMostPatternStates = 1u << 14;
inline constexpr std::size_t kMostPatternWork = 3u << 20;
/// Digits before the point, as many as any 64-bit integer may have whatever they are, and as many
/// after it.
inline constexpr int kMostDigits = 18;
/// Spaces after a line break: eight levels of four.
inline constexpr std::uint32_t kMostIndent = 32;
/// Masks that are kept: 600 of a vocabulary of 49152, 200 of one of 150000.
inline constexpr std::size_t kMaskCacheBytes = 4u << 20;

}  // namespace canopy::grammar
