#include <cmath>

#include "tests/error_of.h"
#include "tests/kernels/scattered.h"

namespace canopy {
namespace {

class RowOps : public OnEachDevice {
 protected:
  std::vector<float> rms_norm(const std::vector<float>& x, const std::vector<std::byte>& g,
                              DType dtype, float eps, std::size_t n, std::size_t width) {
    OnDevice xs = send(x), gs = send(g, 1), y = send(std::vector<float>(x.size()));
    ops().rms_norm(stream(), xs.view(DType::kF32, {dim(n), dim(width)}),
                   gs.view(dtype, {dim(width)}), eps, y.view(DType::kF32, {dim(n), dim(width)}));
    return y.read<float>();
  }
};

TEST_P(RowOps, RmsNormEqualsPlainLoops) {
  std::mt19937 random(1);
  on_each_instruction_set([&] {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
      for (const std::size_t width : {1, 5, 24, 64, 576, 1337}) {
        const std::size_t n = 7;
        const float eps = 1e-5f;
        const std::vector<float> x = random_floats(n * width, random);
        const std::vector<std::byte> g = random_weights(dtype, 1, width, random);
        std::vector<float> gs(width);
        dequantize_row(dtype, g.data(), gs);
        const std::vector<float> y = rms_norm(x, g, dtype, eps, n, width);
        for (std::size_t i = 0; i < n; ++i) {
          double squares = 0;
          for (std::size_t k = 0; k < width; ++k)
            squares += std::pow(static_cast<double>(x[i * width + k]), 2);
          const double r =
              1 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(eps));
          for (std::size_t k = 0; k < width; ++k) {
            const double want =
                static_cast<double>(gs[k]) * static_cast<double>(x[i * width + k]) * r;
            // Half of the sum's (width + 7) roundings survive the root; six more follow.
            const double roundings = (static_cast<double>(width) + 7) / 2 + 6;
            ASSERT_NEAR(y[i * width + k], want, roundings * kEps * std::abs(want));
          }
        }
      }
  });
}

TEST_P(RowOps, RmsNormOfAWidthFourTimesAsLargeWithHalfTheWeightsHasTheSameBits) {
  if (GetParam() != "cpu") GTEST_SKIP() << "a property of the CPU backend";
  std::mt19937 random(2);
  on_each_instruction_set([&] {
    for (const std::size_t width : {8, 96, 576, 1000}) {
      const std::size_t n = 3;
      const std::vector<float> x = random_floats(n * width, random);
      const std::vector<float> g = random_floats(width, random);
      std::vector<float> wide_x(n * 4 * width), wide_g(4 * width, 123.0f);
      for (std::size_t i = 0; i < n; ++i) std::copy_n(&x[i * width], width, &wide_x[i * 4 * width]);
      for (std::size_t k = 0; k < width; ++k) wide_g[k] = g[k] / 2;
      const auto narrow = rms_norm(x, bytes_of(g), DType::kF32, 1e-5f, n, width);
      const auto wide = rms_norm(wide_x, bytes_of(wide_g), DType::kF32, 1e-5f / 4, n, 4 * width);
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t k = 0; k < 4 * width; ++k)
          ASSERT_EQ(wide[i * 4 * width + k], k < width ? narrow[i * width + k] : 0.0f);
    }
  });
}

TEST_P(RowOps, RopeRotatesHalvesOrAdjacentPairs) {
  std::mt19937 random(3);
  for (const RopePairs pairs : {RopePairs::kHalves, RopePairs::kAdjacent})
    for (const std::size_t head_dim : {2, 8, 24, 128}) {
      const std::size_t n = 9, heads = 3, half = head_dim / 2;
      const std::vector<float> x = random_floats(n * heads * head_dim, random);
      const std::vector<std::int32_t> position = {0, 1, 2, 77, 4095, 131071, 5, 5, 12};
      std::vector<float> frequency(half);
      for (std::size_t p = 0; p < half; ++p)
        frequency[p] = std::pow(10000.0f, -static_cast<float>(p) / static_cast<float>(half));
      OnDevice qk = send(x), positions = send(position), frequencies = send(frequency);
      const Rope rope{frequencies.view(DType::kF32, {dim(half)}), 1.25f, pairs};
      ops().rope(stream(), qk.view(DType::kF32, {dim(n), dim(heads), dim(head_dim)}),
                 positions.view(DType::kI32, {dim(n)}), rope);
      const std::vector<float> y = qk.read<float>();
      for (std::size_t row = 0; row < n * heads; ++row)
        for (std::size_t p = 0; p < half; ++p) {
          // The angle's rounding to f32 is part of the definition.
          const auto angle =
              static_cast<double>(static_cast<float>(position[row / heads]) * frequency[p]);
          const bool halves = pairs == RopePairs::kHalves;
          const std::size_t a = row * head_dim + (halves ? p : 2 * p), b = a + (halves ? half : 1);
          const double c = std::cos(angle) * 1.25, s = std::sin(angle) * 1.25;
          const double xa = static_cast<double>(x[a]), xb = static_cast<double>(x[b]);
          // Cosine (1 ulp, that is 2 eps), magnitude, product and sum: 5 roundings of each term.
          const double tolerance = 5 * kEps * 1.25 * (std::abs(xa) + std::abs(xb));
          ASSERT_NEAR(y[a], xa * c - xb * s, tolerance);
          ASSERT_NEAR(y[b], xb * c + xa * s, tolerance);
        }
    }
}

TEST_P(RowOps, RopeMultipliesByATemperatureThatGrowsWithWholePeriods) {
  std::mt19937 random(5);
  const std::size_t heads = 2, head_dim = 8, half = head_dim / 2;
  const std::vector<std::int32_t> position = {0, 15, 16, 31, 32, 48, 100'000};
  const std::size_t n = position.size();
  const std::vector<float> x = random_floats(n * heads * head_dim, random);
  const std::vector<float> frequency = {1.0f, 0.1f, 0.01f, 0.001f};
  for (const RopePairs pairs : {RopePairs::kHalves, RopePairs::kAdjacent}) {
    const auto rotated = [&](float beta, std::int32_t period) {
      OnDevice qk = send(x), positions = send(position), frequencies = send(frequency);
      const Rope rope{frequencies.view(DType::kF32, {dim(half)}), 1.25f, pairs, beta, period};
      ops().rope(stream(), qk.view(DType::kF32, {dim(n), dim(heads), dim(head_dim)}),
                 positions.view(DType::kI32, {dim(n)}), rope);
      return qk.read<float>();
    };
    const std::vector<float> plain = rotated(0.0f, 1), scaled = rotated(0.25f, 16);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const std::int32_t at = position[i / (heads * head_dim)];
      const double temperature = 1 + 0.25 * std::log(1.0 + at / 16);
      const double want = static_cast<double>(plain[i]) * temperature;
      // The logarithm, its product, the sum and the last product.
      ASSERT_NEAR(scaled[i], want, 5 * kEps * std::abs(want)) << "position " << at;
      if (at < 16) {
        ASSERT_EQ(scaled[i], plain[i]);
      }
    }
  }
}

TEST_P(RowOps, SwigluEqualsPlainLoopsAndSurvivesExtremeGates) {
  std::mt19937 random(4);
  on_each_instruction_set([&] {
    const std::size_t n = 3, width = 1003;
    std::vector<float> gate = random_floats(n * width, random, 20.0f);
    const std::vector<float> up = random_floats(n * width, random);
    gate[0] = -1000.0f, gate[1] = 1000.0f, gate[2] = 0.0f, gate[3] = -88.0f;
    OnDevice gates = send(gate), ups = send(up), y = send(std::vector<float>(n * width));
    ops().swiglu(stream(), gates.view(DType::kF32, {dim(n), dim(width)}),
                 ups.view(DType::kF32, {dim(n), dim(width)}),
                 y.view(DType::kF32, {dim(n), dim(width)}));
    const std::vector<float> got = y.read<float>();
    for (std::size_t i = 0; i < n * width; ++i) {
      const double g = static_cast<double>(gate[i]);
      const double want = g / (1 + std::exp(-g)) * static_cast<double>(up[i]);
      // exp is within 4 eps above and below the line; four roundings follow. Below f32's normal
      // range: one step of it.
      ASSERT_NEAR(got[i], want, 12 * kEps * std::abs(want) + 0x1p-126) << "gate " << g;
    }
  });
}

TEST_P(RowOps, AClampedGatingEqualsPlainLoopsAtItsLimitsAndBeyond) {
  std::mt19937 random(14);
  on_each_instruction_set([&] {
    const std::size_t n = 3, width = 1003;
    const Gating gating{GatingKind::kClamped, 7.0f, 1.702f};
    std::vector<float> gate = random_floats(n * width, random, 6.0f),
                       up = random_floats(n * width, random, 6.0f);
    const float edges[] = {-1000, -7.5f, -7, -6.5f, 0, 6.5f, 7, 7.5f, 1000};
    std::size_t next = 0;
    for (const float g : edges)
      for (const float u : edges) gate[next] = g, up[next++] = u;
    OnDevice gates = send(gate), ups = send(up);
    ops().swiglu(stream(), gates.view(DType::kF32, {dim(n), dim(width)}),
                 ups.view(DType::kF32, {dim(n), dim(width)}),
                 gates.view(DType::kF32, {dim(n), dim(width)}), gating);
    const std::vector<float> got = gates.read<float>();
    for (std::size_t i = 0; i < n * width; ++i) {
      const double g = std::min(static_cast<double>(gate[i]), 7.0),
                   u = std::clamp(static_cast<double>(up[i]), -7.0, 7.0);
      const double want = (u + 1) * g / (1 + std::exp(static_cast<double>(-1.702f) * g));
      // As of swiglu, and alpha g is rounded before the exponential.
      const double relative = (16 + 2 * std::abs(g)) * kEps;
      ASSERT_NEAR(got[i], want, relative * std::abs(want) + 0x1p-126) << g << ", " << u;
    }
  });
}

TEST_P(RowOps, AGatingByGeluEqualsPlainLoops) {
  std::mt19937 random(15);
  on_each_instruction_set([&] {
    const std::size_t n = 3, width = 1003;
    std::vector<float> gate = random_floats(n * width, random, 6.0f);
    const std::vector<float> up = random_floats(n * width, random);
    gate[0] = -1000.0f, gate[1] = 1000.0f, gate[2] = 0.0f;
    OnDevice gates = send(gate), ups = send(up);
    ops().swiglu(stream(), gates.view(DType::kF32, {dim(n), dim(width)}),
                 ups.view(DType::kF32, {dim(n), dim(width)}),
                 gates.view(DType::kF32, {dim(n), dim(width)}), {GatingKind::kGelu});
    const std::vector<float> got = gates.read<float>();
    for (std::size_t i = 0; i < n * width; ++i) {
      const double g = static_cast<double>(gate[i]);
      const double u = 2 * std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
      const double want = g / (1 + std::exp(-u)) * static_cast<double>(up[i]);
      // u has six roundings, of which exp makes as many times |u|; nine follow.
      ASSERT_NEAR(got[i], want, (13 + 6 * std::abs(u)) * kEps * std::abs(want) + 0x1p-126) << g;
    }
  });
}

TEST_P(RowOps, AddAndScaleEqualPlainLoops) {
  std::mt19937 random(16);
  on_each_instruction_set([&] {
    const std::size_t n = 3, width = 1003;
    const auto shape = {dim(n), dim(width)};
    const std::vector<float> x = random_floats(n * width, random, 60.0f),
                             y = random_floats(n * width, random);
    OnDevice xs = send(x), ys = send(y);
    ops().add(stream(), xs.view(DType::kF32, shape), 0.3f, ys.view(DType::kF32, shape));
    const std::vector<float> sums = ys.read<float>();
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(sums[i], std::fma(0.3f, x[i], y[i]));
    for (const float cap : {0.0f, 30.0f}) {
      OnDevice scaled = send(x);
      ops().scale(stream(), scaled.view(DType::kF32, shape), 0.7f, cap);
      const std::vector<float> got = scaled.read<float>();
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float product = 0.7f * x[i];
        if (cap == 0) {
          ASSERT_EQ(got[i], product);
          continue;
        }
        const auto bound = static_cast<double>(cap);
        const double want = bound * std::tanh(static_cast<double>(product) / bound);
        // A quotient, tanh within 8 eps, and a product.
        ASSERT_NEAR(got[i], want, 11 * kEps * std::abs(want)) << product;
      }
    }
    OnDevice scaled = send(x), factor = send(std::vector<float>{0.6f});
    ops().scale(stream(), scaled.view(DType::kF32, shape),
                {1.0f, reinterpret_cast<const float*>(factor.view(DType::kF32, {1}).data())});
    const std::vector<float> by_device = scaled.read<float>();
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(by_device[i], 0.6f * x[i]);
    OnDevice odd = send(std::vector<float>{NAN, INFINITY, -INFINITY});
    ops().scale(stream(), odd.view(DType::kF32, {1, 3}), 2.0f, 30.0f);
    const std::vector<float> got = odd.read<float>();
    EXPECT_TRUE(std::isnan(got[0]));
    EXPECT_EQ(got[1], 30.0f);
    EXPECT_EQ(got[2], -30.0f);
  });
}

TEST_P(RowOps, AGatingLeavesWhatIsNotANumber) {
  OnDevice gates = send(std::vector<float>{NAN, 1, NAN}), ups = send(std::vector<float>{1, NAN, 9});
  for (const Gating gating :
       {Gating(), Gating{GatingKind::kClamped, 7.0f, 1.702f}, Gating{GatingKind::kGelu}}) {
    OnDevice y = send(std::vector<float>(3));
    ops().swiglu(stream(), gates.view(DType::kF32, {1, 3}), ups.view(DType::kF32, {1, 3}),
                 y.view(DType::kF32, {1, 3}), gating);
    for (const float value : y.read<float>()) EXPECT_TRUE(std::isnan(value));
  }
}

TEST_P(RowOps, EmbedReadsRowsOfEveryWeightType) {
  std::mt19937 random(5);
  on_each_instruction_set([&] {
    for (const WeightFormat& format : kWeightFormats) {
      const DType dtype = format.dtype;
      SCOPED_TRACE(format.name);
      const std::size_t vocab = 11, width = format.block_elements > 32 ? 768 : 544;
      const std::vector<std::byte> table = random_weights(dtype, vocab, width, random);
      const std::vector<std::int32_t> id = {10, 0, 3, 3};
      OnDevice rows = send(table, 1), ids = send(id);
      OnDevice y = send(std::vector<float>(id.size() * width));
      ops().embed(stream(), rows.weights(dtype, vocab, width),
                  ids.view(DType::kI32, {dim(id.size())}),
                  y.view(DType::kF32, {dim(id.size()), dim(width)}));
      const std::vector<float> got = y.read<float>();
      std::vector<float> row(width);
      for (std::size_t i = 0; i < id.size(); ++i) {
        dequantize_row(
            dtype, table.data() + static_cast<std::size_t>(id[i]) * row_bytes(dtype, dim(width)),
            row);
        ASSERT_EQ(
            std::vector<float>(got.begin() + dim(i * width), got.begin() + dim((i + 1) * width)),
            row);
      }
    }
  });
}

TEST_P(RowOps, AnIdOutsideTheTableIsReportedWhenTheStreamIsSynchronized) {
  OnDevice table = send(std::vector<float>(4 * 8)), y = send(std::vector<float>(8));
  for (const std::int32_t bad : {-1, 4}) {
    OnDevice id = send(std::vector<std::int32_t>{bad});
    ops().embed(stream(), table.weights(DType::kF32, 4, 8), id.view(DType::kI32, {1}),
                y.view(DType::kF32, {1, 8}));
    EXPECT_THROW(stream().synchronize(), Error);
    EXPECT_NO_THROW(stream().synchronize());
  }
}

TEST_P(RowOps, StoredRowsAreRoundedToTheCacheAndTouchNothingElse) {
  std::mt19937 random(6);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const std::size_t n = 5, heads = 3, hd = 24, slots = 133, prefix = 3, first = 62;
    const std::vector<float> k = random_floats(n * heads * hd, random);
    const std::vector<float> v = random_floats(n * heads * hd, random);
    const std::vector<std::byte> before = random_weights(dtype, heads * slots, hd, random);
    const std::vector<std::int32_t> table = Scattered::table(slots, random);
    const Scattered scattered(before, heads, slots, table);
    OnDevice ks = send(k), vs = send(v), blocks = send(table);
    OnDevice keys = send(scattered.pool()), values = send(scattered.pool());
    const auto cache = {dim(heads), std::int64_t{kKvBlock}, dim(hd)};
    const auto rows = {dim(n), dim(heads), dim(hd)};
    ops().store_kv(stream(), ks.view(DType::kF32, rows), vs.view(DType::kF32, rows), prefix,
                   first - prefix,
                   {keys.view(dtype, cache), values.view(dtype, cache),
                    blocks.view(DType::kI32, {dim(table.size())}), dim(scattered.stride())});
    for (const bool is_key : {true, false}) {
      const std::vector<std::byte> after =
          scattered.cache_in((is_key ? keys : values).read<std::byte>());
      std::vector<float> got(heads * slots * hd), old(got.size());
      dequantize_row(dtype, after.data(), got);
      dequantize_row(dtype, before.data(), old);
      for (std::size_t h = 0; h < heads; ++h)
        for (std::size_t s = 0; s < slots; ++s)
          for (std::size_t j = 0; j < hd; ++j) {
            float want = old[(h * slots + s) * hd + j];
            if (s >= first && s < first + n) {
              want = (is_key ? k : v)[((s - first) * heads + h) * hd + j];
              if (dtype == DType::kBF16) want = f32_from_bf16(bf16_from_f32(want));
              if (dtype == DType::kF16) want = f32_from_f16(f16_from_f32(want));
            }
            ASSERT_EQ(got[(h * slots + s) * hd + j], want);
          }
    }
  }
}

TEST_P(RowOps, StoredRowsHaveTheLargestF16ForWhatIsBeyondItAndKeepWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> k = {70000, -1e30f, 65519, kInfinity, -kInfinity, NAN, 1, -65504};
  OnDevice ks = send(k), blocks = send(std::vector<std::int32_t>{0});
  OnDevice keys = send(std::vector<std::uint16_t>(64 * k.size())), values = send(k);
  OnDevice others = send(std::vector<std::uint16_t>(64 * k.size()));
  const auto cache = {std::int64_t{1}, std::int64_t{64}, dim(k.size())};
  const auto rows = {std::int64_t{1}, std::int64_t{1}, dim(k.size())};
  ops().store_kv(stream(), ks.view(DType::kF32, rows), values.view(DType::kF32, rows), 0, 0,
                 {keys.view(DType::kF16, cache), others.view(DType::kF16, cache),
                  blocks.view(DType::kI32, {1}), dim(64 * k.size() * sizeof(std::uint16_t))});
  const std::vector<float> want = {65504, -65504, 65504, kInfinity, -kInfinity, NAN, 1, -65504};
  for (OnDevice* cached : {&keys, &others}) {
    const std::vector<std::uint16_t> got = cached->read<std::uint16_t>();
    for (std::size_t i = 0; i < k.size(); ++i)
      if (std::isnan(want[i]))
        EXPECT_TRUE(std::isnan(f32_from_f16(got[i])));
      else
        EXPECT_EQ(f32_from_f16(got[i]), want[i]) << k[i];
  }
}

TEST_P(RowOps, KeepKvReadsAllRowsBeforeItWritesAny) {
  std::mt19937 random(7);
  const std::size_t heads = 2, hd = 8, slots = 140, first = 61;
  const std::vector<float> before = random_floats(heads * slots * hd, random);
  // Row 0 is overwritten before the last entry reads it, unless everything is read first.
  const std::vector<std::int32_t> path = {4, 2, 8, 0, 1, 1};
  const std::vector<std::int32_t> table = Scattered::table(slots, random);
  const Scattered scattered(bytes_of(before), heads, slots, table);
  OnDevice keys = send(scattered.pool()), values = send(scattered.pool());
  OnDevice rows = send(path), blocks = send(table);
  const auto cache = {dim(heads), std::int64_t{kKvBlock}, dim(hd)};
  ops().keep_kv(stream(), rows.view(DType::kI32, {dim(path.size())}), first,
                {keys.view(DType::kF32, cache), values.view(DType::kF32, cache),
                 blocks.view(DType::kI32, {dim(table.size())}), dim(scattered.stride())});
  for (OnDevice* cached : {&keys, &values}) {
    const std::vector<std::byte> bytes = scattered.cache_in(cached->read<std::byte>());
    std::vector<float> after(before.size());
    std::memcpy(after.data(), bytes.data(), bytes.size());
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t s = 0; s < slots; ++s) {
        const bool moved = s >= first && s < first + path.size();
        const std::size_t from = moved ? first + static_cast<std::size_t>(path[s - first]) : s;
        for (std::size_t j = 0; j < hd; ++j)
          ASSERT_EQ(after[(h * slots + s) * hd + j], before[(h * slots + from) * hd + j]);
      }
  }
}

TEST_P(RowOps, ChecksNameTheOpAndTheMismatch) {
  OnDevice data = send(std::vector<float>(4096));
  const auto f32 = [&](std::initializer_list<std::int64_t> shape) {
    return data.view(DType::kF32, shape);
  };
  Stream& s = stream();
  OnDevice block = send(std::vector<std::int32_t>{0});
  const KvView kv{f32({2, 64, 16}), f32({2, 64, 16}), block.view(DType::kI32, {1}), 8192};
  KvView close = kv;
  close.stride = 4096;
  const std::pair<std::string, std::string> cases[] = {
      {error_of([&] {
         ops().rms_norm(s, f32({2, 8}), f32({7}), 0, f32({2, 8}));
       }),
       "rms_norm: g"},
      {error_of([&] {
         ops().rope(s, f32({2, 1, 7}), data.view(DType::kI32, {2}), {});
       }),
       "rope: head_dim 7 is odd"},
      {error_of([&] {
         ops().swiglu(s, f32({2, 8}), f32({2, 9}), f32({2, 8}));
       }),
       "swiglu: up"},
      {error_of([&] {
         ops().swiglu(s, f32({2, 8}), f32({2, 8}), f32({2, 8}), {GatingKind::kClamped, 0, 1.7f});
       }),
       "swiglu: limit is 0"},
      {error_of([&] {
         ops().add(s, f32({2, 8}), 1, f32({2, 7}));
       }),
       "add: y"},
      {error_of([&] {
         ops().scale(s, f32({2, 8}), 1, -1);
       }),
       "scale: cap is -1"},
      {error_of([&] {
         ops().embed(s, data.weights(DType::kF32, 4, 8), f32({2}), f32({2, 8}));
       }),
       "embed: id is F32"},
      {error_of([&] {
         ops().store_kv(s, f32({3, 2, 16}), f32({3, 2, 16}), 60, 2, kv);
       }),
       "store_kv: slots [62, + 3) are outside a cache of 64"},
      {error_of([&] { ops().keep_kv(s, data.view(DType::kI32, {65}), 0, kv); }), "keep_kv: slots"},
      {error_of([&] { ops().keep_kv(s, data.view(DType::kI32, {5}), 0, close); }),
       "keep_kv: blocks lie 4096 bytes apart, not a multiple of 16 of at least 8192"},
      {error_of([&] {
         TreeAttention call;
         call.q = f32({1, 3, 16}), call.out = f32({1, 3, 16}), call.kv = kv;
         ops().attend(s, call);
       }),
       "attend: 3 heads cannot share 2 kv heads"},
      {error_of([&] {
         ops().probabilities(s, f32({1, 9}), {-1.0f, 0, 1.0f}, f32({1, 9}));
       }),
       "sampling: temperature"},
      {error_of([&] {
         ops().top_tokens(s, f32({1, 9}), 10, data.view(DType::kI32, {1, 10}));
       }),
       "top_tokens: 10 tokens"},
      {error_of([&] {
         ops().draw_tokens(s, f32({1, 9}), 10, Replacement::kNo, {}, 0,
                           data.view(DType::kI32, {1, 10}));
       }),
       "draw_tokens: 10 distinct tokens"},
      {error_of([&] {
         ops().draw_tokens(s, f32({1, 9}), 2, Replacement::kYes, {}, 0,
                           data.view(DType::kI32, {1, 3}));
       }),
       "draw_tokens: token has shape [1, 3], not [1, 2]"}};
  for (const auto& [got, want] : cases) EXPECT_EQ(got.substr(0, want.size()), want);
}

CANOPY_ON_EACH_DEVICE(RowOps);

}  // namespace
}  // namespace canopy
