// The arithmetic of a step, call by call, by Google Benchmark: products (GEMM), tree attention, and
// what the draft and verification do with logits. bench_micro --benchmark_filter=Attention
// --benchmark_format=json, and so on. For the products' share of the machine's peaks there is
// bench_linear.
#include <benchmark/benchmark.h>

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
BENCHMARK(attention)->ArgsProduct({{1, 16, 64, 256}, {128, 1024, 4096}})->UseRealTime();
BENCHMARK(probabilities)->Arg(1)->Arg(16)->UseRealTime();
BENCHMARK(draw_tokens)->Arg(1)->Arg(16)->UseRealTime();
BENCHMARK(top_tokens)->Arg(1)->Arg(16)->UseRealTime();

}  // namespace
}  // namespace canopy

BENCHMARK_MAIN();
