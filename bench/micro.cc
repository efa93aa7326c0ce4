// The arithmetic of a step, call by call, by Google Benchmark: products (GEMM), tree attention, and
// what the draft and verification do with logits. bench_micro --benchmark_filter=Attention
// --benchmark_format=json, and so on. For the products' share of the machine's peaks there is
// bench_linear.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops.h"

namespace canopy {
namespace {

/// One device and stream for all benchmarks, on a thread per core.
struct Machine {
  std::unique_ptr<Device> device = make_device({});
  std::unique_ptr<Stream> stream = device->make_stream("bench");

  static Machine& get() {
    static Machine machine;
    return machine;
  }

  /// Memory that holds small random numbers: f32, or as bytes that are finite in any dtype.
  Buffer floats(std::int64_t count) {
    Buffer buffer = device->allocate(static_cast<std::size_t>(count) * 4);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < count; ++i)
      reinterpret_cast<float*>(buffer.data())[i] = normal(random);
    return buffer;
  }
  Buffer zeros(std::size_t bytes) {
    Buffer buffer = device->allocate(bytes);
    std::memset(buffer.data(), 0, bytes);
    return buffer;
  }
};

/// Calls `work` and waits for it, once per iteration.
template <class Work>
void time(benchmark::State& state, const Work& work) {
  for (auto iteration : state) {
    work();
    Machine::get().stream->synchronize();
  }
}

/// y = x W^T with W [2304, 2304] of zeros in that dtype: the time does not depend on the values.
/// range: rows of x.
void linear(benchmark::State& state, DType dtype) {
  constexpr std::int64_t kSize = 2304;
  Machine& m = Machine::get();
  const std::int64_t n = state.range(0);
  const Buffer w = m.zeros(row_bytes(dtype, kSize) * kSize), x = m.floats(n * kSize);
  const Buffer y = m.zeros(static_cast<std::size_t>(n * kSize) * 4);
  m.device->ops().reserve({.rows = n, .columns = kSize});
  const Projection p{{w.data(), dtype, kSize, kSize}, {}, {y.data(), DType::kF32, {n, kSize}}};
  time(state, [&] {
    m.device->ops().linear(*m.stream, {x.data(), DType::kF32, {n, kSize}}, {&p, 1});
  });
  state.counters["FLOP/s"] = benchmark::Counter(2.0 * static_cast<double>(n * kSize * kSize),
                                                benchmark::Counter::kIsIterationInvariantRate);
}

/// Tree attention in the shape of SmolLM2 inflated to 8 GB: 36 heads, 12 of keys and values, of 64.
/// range: nodes, prefix.
void attention(benchmark::State& state) {
  constexpr std::int64_t kHeads = 36, kKvHeads = 12, kHeadDim = 64;
  Machine& m = Machine::get();
  const std::int64_t n = state.range(0), prefix = state.range(1);
  const std::int64_t slots = (prefix + n + kKvBlock - 1) / kKvBlock * kKvBlock;
  const Buffer q = m.floats(n * kHeads * kHeadDim), k = m.floats(kKvHeads * slots * kHeadDim);
  const Buffer v = m.floats(kKvHeads * slots * kHeadDim);
  const Buffer out = m.zeros(static_cast<std::size_t>(n * kHeads * kHeadDim) * 4);
  // A binary tree, parents first: a node's ancestors are its parent's and itself.
  const std::int64_t words = (n + 63) / 64;
  std::vector<std::uint64_t> bits(static_cast<std::size_t>(n * words));
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t node = i;; node = (node - 1) / 2) {
      bits[static_cast<std::size_t>(i * words + node / 64)] |= std::uint64_t{1} << node % 64;
      if (node == 0) break;
    }
  }
  const auto* ancestors = reinterpret_cast<const std::byte*>(bits.data());
  m.device->ops().reserve(
      {.rows = n, .heads = kHeads, .kv_heads = kKvHeads, .head_dim = kHeadDim, .context = slots});
  std::vector<std::int32_t> blocks(static_cast<std::size_t>(slots / kKvBlock));
  std::iota(blocks.begin(), blocks.end(), 0);
  TreeAttention call;
  call.q = {q.data(), DType::kF32, {n, kHeads, kHeadDim}};
  call.kv = {{k.data(), DType::kF32, {kKvHeads, slots, kHeadDim}},
             {v.data(), DType::kF32, {kKvHeads, slots, kHeadDim}},
             {reinterpret_cast<const std::byte*>(blocks.data()), DType::kI32, {slots / kKvBlock}}};
  call.ancestors = {ancestors, DType::kU64, {n, words}};
  call.prefix = prefix;
  call.scale = 1 / std::sqrt(static_cast<float>(kHeadDim));
  call.out = {out.data(), DType::kF32, {n, kHeads, kHeadDim}};
  time(state, [&] { m.device->ops().attend(*m.stream, call); });
}

/// A mixture's layer of 48 BF16 experts, of which each row has four, next to dense products over
/// the same weights: for each expert in use its rows, in one piece, through gate and up, SwiGLU and
/// down. range: rows.
void experts(benchmark::State& state, bool dense) {
  constexpr std::int64_t kExperts = 48, kActive = 4, kDim = 2304, kHidden = 1536;
  Machine& m = Machine::get();
  const std::int64_t n = state.range(0);
  const std::size_t matrix = row_bytes(DType::kBF16, kDim) * kHidden;
  const Buffer weights = m.zeros(3 * matrix * kExperts);
  std::vector<std::vector<ExpertRow>> rows(kExperts);
  std::mt19937 random(1);
  for (std::int32_t i = 0; i < n; ++i) {
    std::vector<std::size_t> all(kExperts);
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random);
    for (std::int32_t j = 0; j < kActive; ++j)
      rows[all[static_cast<std::size_t>(j)]].push_back(
          {i, i * static_cast<std::int32_t>(kActive) + j});
  }
  const Buffer x = m.floats(n * kDim), sum = m.floats(n * kDim), share = m.floats(n * kActive);
  const Buffer gate = m.floats(n * kHidden), up = m.floats(n * kHidden);
  m.device->ops().reserve({.rows = n, .columns = kDim, .expert_hidden = kHidden});
  std::vector<ExpertUse> uses;
  for (std::size_t e = 0; e < rows.size(); ++e) {
    if (rows[e].empty()) continue;
    const auto at = [&](std::size_t i, std::int64_t height, std::int64_t width) {
      return WeightView{weights.data() + (3 * e + i) * matrix, DType::kBF16, height, width};
    };
    ExpertUse use;
    use.weights = {at(0, kHidden, kDim), at(1, kHidden, kDim), at(2, kDim, kHidden)};
    use.rows = {reinterpret_cast<const std::byte*>(rows[e].data()),
                DType::kI32,
                {static_cast<std::int64_t>(rows[e].size()), 2}};
    uses.push_back(use);
  }
  const auto view = [](const Buffer& of, std::int64_t height, std::int64_t width) {
    return TensorView{of.data(), DType::kF32, {height, width}};
  };
  time(state, [&] {
    Ops& ops = m.device->ops();
    if (!dense)
      return ops.experts(*m.stream, view(x, n, kDim), view(share, n, kActive), uses,
                         view(sum, n, kDim));
    for (const ExpertUse& use : uses) {
      const std::int64_t own = use.rows.dim(0);
      const TensorView inner = view(gate, own, kHidden), other = view(up, own, kHidden);
      const Projection in[] = {{use.weights.gate, {}, inner}, {use.weights.up, {}, other}};
      ops.linear(*m.stream, view(x, own, kDim), in);
      ops.swiglu(*m.stream, inner, other, inner);
      const Projection out{use.weights.down, {}, view(sum, own, kDim)};
      ops.linear(*m.stream, inner, {&out, 1});
    }
  });
}

constexpr std::int64_t kVocab = 49152;

/// softmax(logits / .6), cut to top-p .9. range: rows.
void probabilities(benchmark::State& state) {
  Machine& m = Machine::get();
  const std::int64_t n = state.range(0);
  const Buffer logits = m.floats(n * kVocab), p = m.zeros(static_cast<std::size_t>(n * kVocab) * 4);
  m.device->ops().reserve({.rows = n, .vocab = kVocab});
  time(state, [&] {
    m.device->ops().probabilities(*m.stream, {logits.data(), DType::kF32, {n, kVocab}},
                                  {0.6f, 0, 0.9f}, {p.data(), DType::kF32, {n, kVocab}});
  });
}

/// Eight children of each node, without replacement. range: rows.
void draw_tokens(benchmark::State& state) {
  constexpr int kChildren = 8;
  Machine& m = Machine::get();
  const std::int64_t n = state.range(0);
  const Buffer logits = m.floats(n * kVocab), q = m.zeros(static_cast<std::size_t>(n * kVocab) * 4);
  const Buffer tokens = m.zeros(static_cast<std::size_t>(n * kChildren) * 4);
  m.device->ops().reserve({.rows = n, .vocab = kVocab});
  const TensorView p{q.data(), DType::kF32, {n, kVocab}};
  m.device->ops().probabilities(*m.stream, {logits.data(), DType::kF32, {n, kVocab}}, {1, 0, 1}, p);
  time(state, [&] {
    m.device->ops().draw_tokens(*m.stream, p, kChildren, Replacement::kNo, StepRng{1, 0, 0}, 0,
                                {tokens.data(), DType::kI32, {n, kChildren}});
  });
}

/// The eight likeliest children of each node. range: rows.
void top_tokens(benchmark::State& state) {
  constexpr int kChildren = 8;
  Machine& m = Machine::get();
  const std::int64_t n = state.range(0);
  const Buffer logits = m.floats(n * kVocab),
               tokens = m.zeros(static_cast<std::size_t>(n * kChildren) * 4);
  m.device->ops().reserve({.rows = n, .vocab = kVocab});
  time(state, [&] {
    m.device->ops().top_tokens(*m.stream, {logits.data(), DType::kF32, {n, kVocab}}, kChildren,
                               {tokens.data(), DType::kI32, {n, kChildren}});
  });
}

BENCHMARK_CAPTURE(linear, BF16, DType::kBF16)->RangeMultiplier(4)->Range(1, 256)->UseRealTime();
BENCHMARK_CAPTURE(linear, Q4_0, DType::kQ4_0)->RangeMultiplier(4)->Range(1, 256)->UseRealTime();
BENCHMARK_CAPTURE(linear, Q8_0, DType::kQ8_0)->RangeMultiplier(4)->Range(1, 256)->UseRealTime();
BENCHMARK_CAPTURE(experts, mixture, false)->Arg(1)->Arg(8)->Arg(64)->UseRealTime();
BENCHMARK_CAPTURE(experts, dense, true)->Arg(1)->Arg(8)->Arg(64)->UseRealTime();
BENCHMARK(attention)->ArgsProduct({{1, 16, 64, 256}, {128, 1024, 4096}})->UseRealTime();
BENCHMARK(probabilities)->Arg(1)->Arg(16)->UseRealTime();
BENCHMARK(draw_tokens)->Arg(1)->Arg(16)->UseRealTime();
BENCHMARK(top_tokens)->Arg(1)->Arg(16)->UseRealTime();

}  // namespace
}  // namespace canopy

BENCHMARK_MAIN();
