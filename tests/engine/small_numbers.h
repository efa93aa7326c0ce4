#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include "offload/unit_layout.h"

namespace canopy {

/// BF16 numbers below 1/8 wherever the layout has a tensor, in a file of nothing else.
inline void write_small_numbers(const std::filesystem::path& file, const SweepLayout& sweep) {
  std::uint64_t end = sweep.embedding.offset + sweep.embedding.bytes;
  const auto reach = [&](const auto& of) {
    for (const Extent& extent : of.read.extents) end = std::max(end, extent.offset + extent.bytes);
  };
  for (const UnitLayout& unit : sweep.units) {
    reach(unit);
    for (const UnitTensor& vector : unit.vectors)
      end = std::max(end, vector.tensor.offset + vector.tensor.bytes);
  }
  for (const ExpertLayout& expert : sweep.experts) reach(expert);
  std::mt19937 random(5);
  std::vector<std::uint16_t> numbers(end / 2 + 1);
  for (std::uint16_t& number : numbers)
    number = static_cast<std::uint16_t>((random() & 0x8000u) | 0x3c00u | (random() & 0x1ffu));
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(numbers.data()), static_cast<std::streamsize>(end));
}

}  // namespace canopy
