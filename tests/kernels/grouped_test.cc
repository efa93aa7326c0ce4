// Products with whole numbers whose columns have their group each, and their rows: those with the
// same weights in f32.
#include <cmath>

#include "tests/kernels/grouped_matrix.h"
#include "tests/kernels/on_device.h"

namespace canopy {
namespace {

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
  struct Sent {
    OnDevice rows, groups;
    WeightView view;
  };
  Sent send_matrix(const GroupedFormat& format, const GroupedMatrix& matrix, std::int64_t m,
                   std::int64_t k) {
    const std::span bytes = matrix.companion.bytes();
    Sent sent{send(matrix.rows), send(std::vector<std::byte>(bytes.begin(), bytes.end())), {}};
    sent.view = {{sent.rows.data(), matrix.rows.size()},
                 {format.companion, sent.groups.data()},
                 format.dtype,
                 m,
                 k};
    return sent;
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
          const GroupedMatrix matrix = random_grouped(format, m, k, random);
          const std::vector<float> values = random_floats(to_size(n * k), random);
          OnDevice x = send(values), floats = send(matrix.weights);
          const Sent w = send_matrix(format, matrix, m, k);
          const std::vector<float> got = product(w.view, x, n);
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

TEST_P(Grouped, LookupsHaveTheBitsOfTheWeights) {
  std::mt19937 random(29);
  on_each_instruction_set([&] {
    for (const GroupedFormat& format : kGroupedFormats) {
      const GroupedMatrix matrix = random_grouped(format, 9, 160, random);
      const Sent table = send_matrix(format, matrix, 9, 160);
      const std::vector<std::int32_t> ids{8, 0, 3};
      OnDevice id = send(ids), y = send(std::vector<float>(ids.size() * 160));
      ops().embed(stream(), table.view, id.view(DType::kI32, {3}), y.view(DType::kF32, {3, 160}));
      const std::vector<float> rows = y.read<float>();
      for (std::size_t i = 0; i < rows.size(); ++i)
        ASSERT_EQ(rows[i], matrix.weights[static_cast<std::size_t>(ids[i / 160]) * 160 + i % 160])
            << format.codec << " " << i;
    }
  });
}

CANOPY_ON_EACH_DEVICE(Grouped);

}  // namespace
}  // namespace canopy
