#pragma once
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "src/base/formats/weight_format.h"
#include "tests/test_data.h"

namespace canopy {

/// NAME.blocks, made by make_block_goldens.py: blocks, then the values of all of them.
struct BlockGoldenFile {
  explicit BlockGoldenFile(const WeightFormat& format) {
    const std::filesystem::path path =
        test_data() / "base" / (std::string(format.name) + ".blocks");
    std::ifstream file(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
    const auto elements = static_cast<std::size_t>(format.block_elements);
    const std::size_t count = bytes.size() / (format.block_bytes + elements * sizeof(float));
    EXPECT_GE(count, 8u) << path;
    values.resize(count * elements);
    std::memcpy(values.data(), bytes.data() + count * format.block_bytes,
                values.size() * sizeof(float));
  }
  const std::byte* blocks() const { return reinterpret_cast<const std::byte*>(bytes.data()); }

  std::vector<char> bytes;
  std::vector<float> values;
};

}  // namespace canopy
