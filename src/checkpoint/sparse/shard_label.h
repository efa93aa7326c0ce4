#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace canopy {

/// The part of a model's rows that a directory has, which `canopy shard` wrote for one of several
/// ranks: files as long as the model's, with holes where the other ranks' rows were. Plain data.
struct ShardLabel {
  int rank = 0;
  std::vector<std::int64_t> parts;  // of each rank, above 0
  std::int64_t block = 0;           // rows between which matrices are cut
  std::string fingerprint;          // of the whole model

  bool operator==(const ShardLabel&) const = default;
};

/// The file of a directory that says so.
inline constexpr const char* kShardFile = "canopy_shard.json";

std::string to_json(const ShardLabel& label);
/// "the rows of rank 1 of 3, with --shares 2:1:1".
std::string in_words(const ShardLabel& label);
/// Reads the label next to a model's files; nothing where there is none. Throws Error naming the
/// file and what is wrong with it.
std::optional<ShardLabel> read_shard_label(const std::filesystem::path& model);

}  // namespace canopy
