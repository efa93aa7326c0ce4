#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "src/base/file.h"

namespace canopy {

/// A tokenizer.json, the deepest of the files that are read, has eight levels. What walks or copies
/// a document recurses, so its depth is bounded before it is built.
inline constexpr int kMostJsonDepth = 64;

/// Parses JSON that may be hostile. Throws Error: not JSON (with the byte), nested deeper than
/// kMostJsonDepth, or a key given twice in one object.
nlohmann::json parse_json(std::string_view text);
/// The same; keys keep their order. For small documents: its objects find keys by linear search.
nlohmann::ordered_json parse_ordered_json(std::string_view text);

/// What nlohmann says of a syntax error, without what it says of itself: one line in quotes.
std::string syntax_error(const nlohmann::json::exception& error);

/// A file of JSON: read_file(), then parse_json(). Throws Error naming the file.
nlohmann::json read_json(const std::filesystem::path& file, std::uint64_t most_bytes, FileKind kind,
                         const std::stop_token& stop = {});

}  // namespace canopy
