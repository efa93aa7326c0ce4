// Products with whole numbers whose columns have their group each: those with the same weights in
// f32.
#include <cmath>
#include <cstring>

#include "src/base/formats/grouped_format.h"
#include "src/base/formats/packed_format.h"
#include "tests/kernels/on_device.h"

namespace canopy {
namespace {

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

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }
/// A factor of a product, as a GPU has it.
double in_f16(float value) { return static_cast<double>(f32_from_f16(f16_from_f32(value))); }

class Grouped : public OnEachDevice {
 protected:
  std::vector<float> product(const WeightView& w, OnDevice& x, std::int64_t n) {
    OnDevice y = send(std::vector<float>(to_size(n * w.rows())));
    const Projection p{w, {}, y.view(DType::kF32, {n, w.rows()})};
    ops().linear(stream(), x.view(DType::kF32, {n, w.columns()}), {&p, 1});
    return y.read<float>();
  }
};

TEST_P(Grouped, ProductsAreThoseOfTheWeightsInF32) {
  std::mt19937 random(23);
  on_each_instruction_set([&] {
    for (const GroupedFormat& format : kGroupedFormats)
      for (const std::int64_t k : {32, 96, 512, 1120})
        for (const std::int64_t m : {1, 6, 131}) {
          const std::int64_t n = m == 6 ? 3 : 13;
          SCOPED_TRACE(testing::Message()
                       << format.codec << " n " << n << " k " << k << " m " << m);
          const GroupedMatrix matrix = visit_format(
              GroupedFormats(), format.dtype,
              [&]<class Format>(Format) { return random_grouped<Format>(m, k, random); });
          const std::vector<float> values = random_floats(to_size(n * k), random);
          OnDevice x = send(values), rows = send(matrix.rows), floats = send(matrix.weights);
          const std::span bytes = matrix.companion.bytes();
          OnDevice groups = send(std::vector<std::byte>(bytes.begin(), bytes.end()));
          const WeightView w({rows.data(), matrix.rows.size()}, {format.companion, groups.data()},
                             format.dtype, m, k);
          const std::vector<float> got = product(w, x, n);
          const std::vector<float> wanted =
              product(floats.weights(DType::kF32, to_size(m), to_size(k)), x, n);
          for (std::size_t i = 0; i < got.size(); ++i) {
            if (GetParam() == "cpu") {
              ASSERT_EQ(got[i], wanted[i]) << i;
              continue;
            }
            double sum = 0, absolute = 0;
            for (std::size_t c = 0; c < to_size(k); ++c) {
              const double term = in_f16(matrix.weights[i % to_size(m) * to_size(k) + c]) *
                                  in_f16(values[i / to_size(m) * to_size(k) + c]);
              sum += term, absolute += std::abs(term);
            }
            // math.md (C2)
            ASSERT_NEAR(static_cast<double>(got[i]), sum,
                        static_cast<double>(k + 7) * kEps * absolute)
                << i;
          }
        }
  });
}
CANOPY_ON_EACH_DEVICE(Grouped);

}  // namespace
}  // namespace canopy
