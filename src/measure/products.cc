#include "src/measure/products.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops.h"

namespace canopy {

namespace {

constexpr std::int64_t kRows = 8192, kColumns = 8192, kMany = 64;

class Products {
 public:
  explicit Products(int threads)
      : device_(make_device({.threads = threads})), stream_(device_->make_stream("products")) {
    w_ = device_->allocate(static_cast<std::size_t>(kRows * kColumns) * 2);
    x_ = device_->allocate(static_cast<std::size_t>(kMany * kColumns) * sizeof(float));
    y_ = device_->allocate(static_cast<std::size_t>(kMany * kRows) * sizeof(float));
    device_->ops().reserve({.rows = kMany, .columns = kColumns});
    fill(w_);
    fill(x_);
  }
  ProductRates rates() {
    return {device_->name(), static_cast<double>(w_.bytes()) / seconds(1),
            2.0 * kMany * kRows * kColumns / seconds(kMany)};
  }

 private:
  /// Small numbers: 16 bits of a bf16 near one, twice.
  void fill(const Buffer& buffer) {
    std::mt19937 random(1);
    std::vector<std::uint32_t> words(buffer.bytes() / 4);
    for (std::uint32_t& word : words) word = 0x3f003f00u | (random() & 0x00ff00ffu);
    device_->upload(*stream_, buffer.data(), std::as_bytes(std::span(words)));
    stream_->synchronize();
  }
  /// The median of one product's.
  double seconds(std::int64_t rows) {
    std::vector<double> times;
    for (int i = 0; i < 9; ++i) {
      const auto start = std::chrono::steady_clock::now();
      const TensorView y(y_.data(), DType::kF32, {rows, kRows});
      const std::array product{
          Projection{WeightView(w_.data(), DType::kBF16, kRows, kColumns), {}, y}};
      device_->ops().linear(*stream_, {x_.data(), DType::kF32, {rows, kColumns}}, product);
      stream_->synchronize();
      times.push_back(Seconds(std::chrono::steady_clock::now() - start).count());
    }
    std::nth_element(times.begin(), times.begin() + 4, times.end());
    return times[4];
  }

  std::unique_ptr<Device> device_;
  Buffer w_, x_, y_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace

ProductRates measure_products(int threads) { return Products(threads).rates(); }

}  // namespace canopy
