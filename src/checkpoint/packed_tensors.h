#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/checkpoint.h"

namespace canopy {

/// Names of the parts of packed safetensors files (docs/formats.md, "Packed models").
namespace packed {
/// A key of __metadata__: JSON of what the file says of each of its tensors.
inline constexpr std::string_view kDescriptions = "canopy.tensors";
inline constexpr std::string_view kPadding = "canopy.pad.";  // and a number: bytes of no meaning
inline constexpr std::string_view kPayload = ".packed", kRowOffsets = ".row_offsets",
                                  kGroups = ".groups";

/// One tensor's description: codec and shape of a packed one, and its checksum.
struct Description {
  std::string codec;  // "" for a tensor that is stored as it is; of blocks their format
  std::vector<std::int64_t> shape;
  std::uint64_t checksum = 0;  // TensorEntry::checksum
};
std::string to_text(const std::vector<std::pair<std::string, Description>>& tensors);
}  // namespace packed

/// The tensors of a safetensors file from what is stored in it: payload and row offsets, or groups,
/// of a packed matrix become one entry, that of an FP8 matrix without its scales, and padding is
/// left out. `descriptions`: the value of
/// packed::kDescriptions, nothing where the file has none. Reads the offsets, and checks all that
/// can be known without the payloads. Throws Error naming the tensor.
std::vector<TensorEntry> with_packed_tensors(std::vector<TensorEntry> stored,
                                             const std::optional<std::string>& descriptions,
                                             const std::filesystem::path& file);

}  // namespace canopy
