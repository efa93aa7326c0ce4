#include "kernels/cuda/delta/ops.h"
#include "tests/kernels/emulated_cuda.h"

namespace canopy {

namespace {

class EmulatedOps final : public cuda::DeltaBlockOps<SerialLaunch> {
 public:
  EmulatedOps(Device& device, const SerialLaunch& launch)
      : DeltaBlockOps<SerialLaunch>(device, launch, launch.fault), card_(*launch.card) {}

 private:
  void multiply(Stream& stream, const cuda::MatrixProduct& p) override {
    card_.multiplied();
    dynamic_cast<EmulatedStream&>(stream).enqueue([=] {
      visit_format(PlainFormats(), p.dtype, [&]<class Format>(Format) {
        for (std::int64_t i = 0; i < p.count; ++i) multiply<Format>(p, i);
      });
    });
  }
  /// Sums in the order of k, as many at a time as w has rows.
  template <class Format>
  static void multiply(const cuda::MatrixProduct& p, std::int64_t number) {
    const std::byte* const x = p.x + bytes_of_row<Format>(number * p.n * p.k);
    const std::byte* const w = p.w + bytes_of_row<Format>(number * p.m * p.k);
    float* const y = p.y + number * p.n * p.stride;
    const auto m = static_cast<std::size_t>(p.m);
    std::vector<float> columns(m * static_cast<std::size_t>(p.k)), sums(m);  // of w: [k, m]
    for (std::int64_t c = 0; c < p.k; ++c)
      for (std::int64_t j = 0; j < p.m; ++j)
        columns[static_cast<std::size_t>(c * p.m + j)] =
            weight_at<Format>(w, p.by_columns ? c * p.m + j : j * p.k + c);
    for (std::int64_t i = 0; i < p.n; ++i) {
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (std::int64_t c = 0; c < p.k; ++c) {
        const float factor = weight_at<Format>(x, i * p.k + c);
        const float* const column = &columns[static_cast<std::size_t>(c * p.m)];
        for (std::size_t j = 0; j < m; ++j) sums[j] += factor * column[j];
      }
      for (std::size_t j = 0; j < m; ++j) {
        float& to = y[i * p.stride + static_cast<std::int64_t>(j)];
        to = p.accumulate ? to + p.factor * sums[j] : p.factor * sums[j];
      }
    }
  }

  EmulatedCard& card_;
};

}  // namespace

std::unique_ptr<Ops> make_emulated_ops(Device& device, const SerialLaunch& launch) {
  return std::make_unique<EmulatedOps>(device, launch);
}

}  // namespace canopy
