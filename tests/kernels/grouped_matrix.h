#pragma once
#include <cstddef>
#include <random>
#include <vector>

#include "src/base/formats/grouped_format.h"
#include "src/base/formats/packed_format.h"

namespace canopy {

/// A matrix of random codes and scales, and its weights by their definition.
struct GroupedMatrix {
  Companion companion;
  std::vector<std::byte> rows;
  std::vector<float> weights;
};
template <class Format>
GroupedMatrix random_grouped(std::int64_t rows, std::int64_t columns, std::mt19937& random) {
  using Group = typename Format::Group;
  constexpr std::int32_t kGroups = 5;
  std::vector<std::int32_t> of(static_cast<std::size_t>(columns));
  for (std::int32_t& group : of) group = static_cast<std::int32_t>(random() % kGroups);
  of.back() = kGroups - 1;
  GroupedMatrix m{companion_of_groups(*find_grouped_format(Format::kDType), of, rows), {}, {}};
  m.rows.resize(m.companion.place_of_rows(0, rows).bytes);
  for (std::byte& byte : m.rows) byte = static_cast<std::byte>(random());
  std::uniform_real_distribution<float> uniform(-0.01f, 0.01f);
  for (std::int64_t i = 0; i < rows; ++i) {
    std::byte* const row = m.rows.data() + m.companion.place_of_rows(i, 1).offset;
    for (int g = 0; g < kGroups; ++g) {
      const float scale = uniform(random);
      Group::put_scale(row + g * Format::kGroupBytes,
                       g % 2 == 0
                           ? format::Scale16{f16_from_f32(scale), format::ScaleType::kF16}
                           : format::Scale16{bf16_from_f32(scale), format::ScaleType::kBF16});
    }
    std::vector<float> weights(static_cast<std::size_t>(columns));
    row_as_f32(Format::kDType, m.companion.row(row, i), weights);
    m.weights.insert(m.weights.end(), weights.begin(), weights.end());
  }
  return m;
}

/// The same of a format that is known when it runs.
inline GroupedMatrix random_grouped(const GroupedFormat& format, std::int64_t rows,
                                    std::int64_t columns, std::mt19937& random) {
  return visit_format(GroupedFormats(), format.dtype, [&]<class Format>(Format) {
    return random_grouped<Format>(rows, columns, random);
  });
}

}  // namespace canopy
