// Measures how close linear comes to this machine: its share of the FMA peak for many rows, and of
// the RAM's read bandwidth for few. The ceilings are measured next to every point, because a shared
// machine changes from one second to the next. Between linear and the FMA peak lies a third: the
// peak of a loop that loads its operands from L1, as every tile must. A weight type is timed only
// after it matched its plain definition.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/linear.cc"
#include "hwy/foreach_target.h"  // before highway.h
//
#include <algorithm>
#include <atomic>
#include <boost/program_options.hpp>
#include <cmath>
#include <cstring>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "hwy/highway.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "src/base/error.h"
#include "src/base/formats/block_scales.h"
#include "src/base/formats/half.h"
#include "src/base/formats/weight_format.h"
#include "src/convert/pack/pack_row.h"

HWY_BEFORE_NAMESPACE();
namespace canopy::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;

/// 12 chains of fused multiply-adds, more than hide the latency; returns how many flops. Several
/// rounds per branch: on processors that keep no decoded copy of a branch across 32 bytes (Intel's
/// JCC erratum) a short loop would measure where the linker put it.
double multiply_add(std::size_t rounds, float* out) {
  const Floats d;
  const auto factor = hn::Set(d, out[0]), term = hn::Set(d, out[1]);
  hn::Vec<Floats> acc[12];
  for (auto& a : acc) a = hn::Zero(d);
  for (std::size_t i = 0; i < rounds; ++i)
#pragma GCC unroll 4
    for (int repeat = 0; repeat < 4; ++repeat)
#pragma GCC unroll 12
      for (auto& a : acc) a = hn::MulAdd(a, factor, term);
  for (auto& a : acc) out[2] += hn::GetLane(a);
  return static_cast<double>(rounds * 48 * 2 * hn::Lanes(d));
}

/// The loop of a tile that finds all it needs in the nearest lines of L1: R rows by 4 weights. Held
/// against multiply_add it shows what the loads cost: nothing on a core of one's own, much where
/// the other hardware thread of the core is somebody else's and takes its share of the slots.
double multiply_add_from_l1(std::size_t rounds, float* out) {
  constexpr std::size_t kRows = hn::MaxLanes(Floats()) == 16 ? 6 : 3;
  const Floats d;
  alignas(64) static const float near[(kRows + 4) * hn::MaxLanes(Floats())] = {1.0f};
  const float* x = near;
  const float* w = near + kRows * hn::Lanes(d);
  hn::Vec<Floats> acc[kRows][4];
  for (auto& row : acc)
    for (auto& a : row) a = hn::Zero(d);
  for (std::size_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+r"(x), "+r"(w));  // the loads are made anew in every round
    hn::Vec<Floats> xs[kRows];
#pragma GCC unroll 6
    for (std::size_t m = 0; m < kRows; ++m) xs[m] = hn::Load(d, x + m * hn::Lanes(d));
#pragma GCC unroll 4
    for (std::size_t r = 0; r < 4; ++r) {
      const auto ws = hn::Load(d, w + r * hn::Lanes(d));
#pragma GCC unroll 6
      for (std::size_t m = 0; m < kRows; ++m) acc[m][r] = hn::MulAdd(xs[m], ws, acc[m][r]);
    }
  }
  for (auto& row : acc)
    for (auto& a : row) out[2] += hn::GetLane(a);
  return static_cast<double>(rounds * kRows * 4 * 2 * hn::Lanes(d));
}

/// Reads n bytes, a multiple of 512.
float read_all(const std::byte* from, std::size_t n) {
  const Floats d;
  const std::size_t step = hn::Lanes(d) * sizeof(float);
  hn::Vec<Floats> acc[4];
  for (auto& a : acc) a = hn::Zero(d);
  for (std::size_t at = 0; at < n; at += 4 * step)
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i)
      acc[i] = hn::Xor(acc[i], hn::LoadU(d, reinterpret_cast<const float*>(from + at + i * step)));
  return hn::GetLane(hn::Xor(hn::Xor(acc[0], acc[1]), hn::Xor(acc[2], acc[3])));
}

}  // namespace canopy::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace canopy {

HWY_EXPORT(multiply_add);
HWY_EXPORT(multiply_add_from_l1);
HWY_EXPORT(read_all);

namespace {

/// Seconds of work(): on the wall, or of CPU time per thread, which other processes disturb less.
struct Watch {
  int threads = 1;
  bool cpu_time = false;
  double now() const {
    timespec t{};
    clock_gettime(cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    const double seconds = static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
    return cpu_time ? seconds / threads : seconds;
  }
  double seconds_of(const auto& work) const {
    const double start = now();
    work();
    return now() - start;
  }
};

/// body(index) for each of `count` indices, on all threads, which take turns as the pool's do.
void on_all_threads(int threads, std::size_t count, const auto& body) {
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> pool;
  const auto take_turns = [&] {
    for (std::size_t i; (i = next++) < count;) body(i);
  };
  for (int i = 1; i < threads; ++i) pool.emplace_back(take_turns);
  take_turns();
  for (std::thread& thread : pool) thread.join();
}

double peak_flops(const Watch& watch, auto multiply) {
  std::atomic<double> flops{0};
  const double seconds = watch.seconds_of([&] {
    on_all_threads(watch.threads, 16 * static_cast<std::size_t>(watch.threads), [&](std::size_t) {
      float values[3] = {0.5f, 1.0f, 0.0f};
      flops += multiply(20000, values);
    });
  });
  return flops / seconds;
}

double fma_peak(const Watch& watch) {
  return peak_flops(watch, HWY_DYNAMIC_DISPATCH(multiply_add));
}
double l1_peak(const Watch& watch) {
  return peak_flops(watch, HWY_DYNAMIC_DISPATCH(multiply_add_from_l1));
}

double read_bandwidth(const Watch& watch, const Buffer& buffer) {
  constexpr std::size_t kPart = std::size_t{1} << 20;
  const std::size_t parts = buffer.bytes() / kPart;
  std::atomic<float> sink{0};
  const double seconds = watch.seconds_of([&] {
    on_all_threads(watch.threads, parts, [&](std::size_t i) {
      sink = HWY_DYNAMIC_DISPATCH(read_all)(buffer.data() + i * kPart, kPart);
    });
  });
  return static_cast<double>(parts * kPart) / seconds;
}

/// Fills the buffer with finite weights: one random piece, repeated.
void fill(const Buffer& buffer, DType dtype) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  const WeightFormat& format = *find_format(dtype);
  std::vector<std::byte> piece(format.block_bytes * 4096);
  for (std::byte& byte : piece) byte = static_cast<std::byte>(random());
  for (std::size_t b = 0; b < piece.size(); b += format.block_bytes) {
    const float value = uniform(random);
    if (!in_blocks(dtype)) {
      encode_row(dtype, {&value, 1}, &piece[b]);
      continue;
    }
    visit_format(BlockFormats(), dtype, [&]<class Format>(Format) {
      put_scales<Format>({value, uniform(random)}, &piece[b]);
    });
  }
  for (std::size_t at = 0; at < buffer.bytes(); at += piece.size())
    std::memcpy(buffer.data() + at, piece.data(), std::min(piece.size(), buffer.bytes() - at));
}

struct Setup {
  Device& device;
  Stream& stream;
  Watch watch;
  std::int64_t k, m;
  Buffer weights;  // several matrices, together larger than any cache
  Buffer x, y;
  std::vector<WeightView> matrices = {};  // in there
  Companion companion = {};               // of each, if their format has one
};

void place_matrices(Setup& s, DType dtype) {
  fill(s.weights, dtype);
  const std::size_t matrix = row_bytes(dtype, s.k) * static_cast<std::size_t>(s.m);
  for (std::size_t at = 0; at + matrix <= s.weights.bytes(); at += matrix)
    s.matrices.emplace_back(s.weights.data() + at, dtype, s.m, s.k);
}

/// Copies of one matrix of normal values.
template <class Format>
void place_packed(Setup& s) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<std::uint16_t> row(static_cast<std::size_t>(s.k));
  std::vector<std::byte> packed;
  std::vector<std::size_t> rows;
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::uint16_t& bits : row) bits = bf16_from_f32(normal(random));
    const std::size_t before = packed.size();
    if (!pack_row(Format(), row, packed)) throw Error("a row cannot be packed");
    rows.push_back(packed.size() - before);
  }
  s.companion = companion_of_rows(*find_packed_format(Format::kDType), rows, s.k);
  for (std::size_t at = 0; at + packed.size() <= s.weights.bytes(); at += packed.size()) {
    std::memcpy(s.weights.data() + at, packed.data(), packed.size());
    s.matrices.emplace_back(std::span(s.weights.data() + at, packed.size()), s.companion.view(),
                            Format::kDType, s.m, s.k);
  }
}

/// Copies of one matrix of normal values, as FP8 that is packed.
template <class Format>
void place_packed_fp8(Setup& s) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, format::kLargestE4M3 / 4);  // some reach the largest
  std::vector<std::uint8_t> row(static_cast<std::size_t>(s.k));
  std::vector<std::byte> packed;
  std::vector<std::size_t> rows;
  for (std::int64_t i = 0; i < s.m; ++i) {
    const std::size_t before = packed.size();
    for (std::uint8_t& code : row) code = format::e4m3_from_f32(normal(random));
    if (!pack_row(Format(), row, packed)) throw Error("a row cannot be packed");
    rows.push_back(packed.size() - before);
  }
  const std::vector<float> scales(Format::Plain::companion_bytes(s.m, s.k) / sizeof(float),
                                  0.0005f);
  s.companion = companion_of_rows(*find_packed_format(Format::kDType), rows, s.k, scales);
  for (std::size_t at = 0; at + packed.size() <= s.weights.bytes(); at += packed.size()) {
    std::memcpy(s.weights.data() + at, packed.data(), packed.size());
    s.matrices.emplace_back(std::span(s.weights.data() + at, packed.size()), s.companion.view(),
                            Format::kDType, s.m, s.k);
  }
}

/// Matrices of random codes, which share their scales.
template <class Format>
void place_fp8(Setup& s) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(0.0001f, 0.001f);
  const std::size_t bytes = static_cast<std::size_t>(s.m * s.k);
  std::vector<float> scales(Format::companion_bytes(s.m, s.k) / sizeof(float));
  for (float& scale : scales) scale = uniform(random);
  const auto of_scales = std::as_bytes(std::span(scales));
  s.companion = {kCompanionOf<Format>, {of_scales.begin(), of_scales.end()}, s.m, s.k, bytes};
  for (std::size_t i = 0; i < bytes; ++i) {
    const auto code = static_cast<std::uint8_t>(random());
    s.weights.data()[i] =
        static_cast<std::byte>((code & 0x7f) == format::kE4M3NaN ? code - 1 : code);
  }
  for (std::size_t at = 0; at + bytes <= s.weights.bytes(); at += bytes) {
    if (at > 0) std::memcpy(s.weights.data() + at, s.weights.data(), bytes);
    s.matrices.emplace_back(std::span(s.weights.data() + at, bytes), s.companion.view(),
                            Format::kDType, s.m, s.k);
  }
}

/// One call per matrix index in [first, first + calls), each with another matrix.
void run(Setup& s, std::int64_t n, std::size_t first, std::size_t calls) {
  for (std::size_t i = first; i < first + calls; ++i) {
    const Projection p{s.matrices[i % s.matrices.size()], {}, {s.y.data(), DType::kF32, {n, s.m}}};
    s.device.ops().linear(s.stream, {s.x.data(), DType::kF32, {n, s.k}}, {&p, 1});
  }
  s.stream.synchronize();
}

void expect_right(Setup& s) {
  const WeightView& w = s.matrices.front();
  run(s, 2, 0, 1);
  const auto* x = reinterpret_cast<const float*>(s.x.data());
  const auto* y = reinterpret_cast<const float*>(s.y.data());
  std::vector<float> row(static_cast<std::size_t>(s.k));
  for (const std::int64_t j : {std::int64_t{0}, s.m / 2, s.m - 1}) {
    row_as_f32(w.format(), w.row(j), row);
    double sum = 0, absolute = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double term = static_cast<double>(row[i]) * static_cast<double>(x[i]);
      sum += term, absolute += std::abs(term);
    }
    if (!(std::abs(static_cast<double>(y[j]) - sum) <=
          (static_cast<double>(s.k) + 7) * 0x1p-24 * absolute))
      throw Error(std::string("linear is wrong for ") + name(w.format()) + "; not timed");
  }
}

double middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(Setup& s, std::int64_t n, int rounds, bool as_json) {
  const DType dtype = s.matrices.front().format();
  const auto weights = static_cast<double>(s.k * s.m);
  const double flops = 2.0 * static_cast<double>(n) * weights;
  const auto bytes = static_cast<double>(s.matrices.front().bytes());
  std::size_t next = 0;
  run(s, n, next++, 1);
  const double once = s.watch.seconds_of([&] { run(s, n, next++, 1); });
  const auto calls = static_cast<std::size_t>(std::clamp(0.03 / once, 1.0, 64.0));
  std::vector<double> took, of_peak, of_l1, of_ram;
  for (int round = 0; round < rounds; ++round) {
    const double peak = fma_peak(s.watch), l1 = l1_peak(s.watch);
    const double ram = read_bandwidth(s.watch, s.weights);
    took.push_back(s.watch.seconds_of([&] { run(s, n, next, calls); }) /
                   static_cast<double>(calls));
    next += calls;
    of_peak.push_back(flops / took.back() / peak);
    of_l1.push_back(flops / took.back() / l1);
    of_ram.push_back(bytes / took.back() / ram);
  }
  const double median = middle(took);
  std::sort(took.begin(), took.end());
  if (as_json) {
    std::cout << nlohmann::json{{"name", "linear"},
                                {"dtype", name(dtype)},
                                {"rows", n},
                                {"k", s.k},
                                {"m", s.m},
                                {"threads", s.watch.threads},
                                {"clock", s.watch.cpu_time ? "cpu" : "wall"},
                                {"median_s", median},
                                {"best_s", took.front()},
                                {"gflops", flops / median / 1e9},
                                {"gb_per_s", bytes / median / 1e9},
                                {"weights_per_s", weights / median},
                                {"of_fma_peak", middle(of_peak)},
                                {"of_fma_peak_best",
                                 *std::max_element(of_peak.begin(), of_peak.end())},
                                {"of_l1_peak", middle(of_l1)},
                                {"of_ram", middle(of_ram)},
                                {"of_ram_best", *std::max_element(of_ram.begin(), of_ram.end())},
                                {"machine", s.device.name()}}
              << std::endl;
  } else {
    char line[200];
    std::snprintf(line, sizeof line,
                  "%-7s %4lld rows %8.1f GFLOP/s %6.1f GB/s %6.2f G weights/s   of FMA peak %3.0f "
                  "%% (best %3.0f), fed from L1 "
                  "%3.0f %%   of RAM %3.0f %% (best %3.0f)",
                  name(dtype), static_cast<long long>(n), flops / median / 1e9,
                  bytes / median / 1e9, weights / median / 1e9, 100 * middle(of_peak),
                  100 * *std::max_element(of_peak.begin(), of_peak.end()), 100 * middle(of_l1),
                  100 * middle(of_ram), 100 * *std::max_element(of_ram.begin(), of_ram.end()));
    std::cout << line << std::endl;
  }
}

/// Makes all kernels those of the instruction set of that name, such as AVX2.
/// Throws: Error, where this processor or this build lacks it.
void choose_instructions(const std::string& wanted) {
  std::string others;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const std::string name = hwy::TargetName(target);
    if (name == wanted) return hwy::SetSupportedTargetsForTest(target);
    others += " " + name;
  }
  throw Error("no kernels of " + wanted + " run here: --instructions takes one of" + others);
}

int run_all(int argc, char** argv) {
  namespace po = boost::program_options;
  std::vector<std::int64_t> rows;
  std::vector<std::string> types;
  std::string instructions;
  std::int64_t k = 0, m = 0;
  int threads = 0, rounds = 0;
  po::options_description options("linear against the FMA peak and the RAM's read bandwidth");
  options.add_options()("help", "show this")("json", "one JSON object per line")(
      "cpu-time", "measure CPU time per thread, for a machine shared with others")(
      "rows",
      po::value(&rows)->multitoken()->default_value({1, 2, 4, 8, 16, 64, 128, 256},
                                                    "1 2 4 8 16 64 128 256"),
      "rows of x")(
      "dtype",
      po::value(&types)->multitoken()->default_value(
          {"BF16", "packed", "levels", "FP8", "FP8 levels", "F16", "Q8_0", "Q4_0", "Q4_1", "Q4_K",
           "Q6_K"},
          "BF16 packed levels FP8 'FP8 levels' F16 Q8_0 Q4_0 Q4_1 Q4_K Q6_K"),
      "weight types: BF16, packed, levels, FP8, FP8 by rows, FP8 levels, or any name of a block: "
      "Q4_K, I4_128, NF4")("k", po::value(&k)->default_value(4096), "columns of w")(
      "m", po::value(&m)->default_value(4096), "rows of w")(
      "threads",
      po::value(&threads)->default_value(static_cast<int>(std::thread::hardware_concurrency())),
      "threads of the device")("rounds", po::value(&rounds)->default_value(7), "timings per point")(
      "instructions", po::value(&instructions),
      "use the kernels of this instruction set, such as AVX2, instead of the best that runs here");
  po::variables_map given;
  po::store(po::parse_command_line(argc, argv, options), given);
  po::notify(given);
  if (given.count("help") != 0) {
    std::cout << options;
    return 0;
  }
  if (!instructions.empty()) choose_instructions(instructions);
  const auto device = make_device({.threads = threads});
  const auto stream = device->make_stream("bench");
  const std::int64_t most = *std::max_element(rows.begin(), rows.end());
  Setup s{*device,
          *stream,
          {threads, given.count("cpu-time") != 0},
          k,
          m,
          device->allocate(std::size_t{256} << 20),
          device->allocate(static_cast<std::size_t>(std::max<std::int64_t>(2, most) * k) * 4),
          device->allocate(static_cast<std::size_t>(std::max<std::int64_t>(2, most) * m) * 4)};
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (std::size_t i = 0; i < s.x.bytes() / 4; ++i)
    reinterpret_cast<float*>(s.x.data())[i] = uniform(random);
  if (given.count("json") == 0)
    std::cout << device->name() << "; w " << m << " x " << k << "; FMA peak "
              << fma_peak(s.watch) / 1e9 << " GFLOP/s, fed from L1 " << l1_peak(s.watch) / 1e9
              << " GFLOP/s" << std::endl;
  const auto measure_type = [&](const char* type, const auto& place) {
    if (std::find(types.begin(), types.end(), type) == types.end()) return;
    s.matrices.clear();
    place();
    expect_right(s);
    for (const std::int64_t n : rows) measure(s, n, rounds, given.count("json") != 0);
  };
  for (const WeightFormat& format : kWeightFormats)
    measure_type(format.name, [&] { place_matrices(s, format.dtype); });
  measure_type("packed", [&] { place_packed<format::PackedBF16>(s); });
  measure_type("levels", [&] { place_packed<format::LevelsBF16>(s); });
  measure_type("FP8", [&] { place_fp8<format::E4M3Blocks>(s); });
  measure_type("FP8 levels", [&] { place_packed_fp8<format::LevelsE4M3Blocks>(s); });
  measure_type("FP8 by rows", [&] { place_fp8<format::E4M3Rows>(s); });
  return 0;
}

}  // namespace
}  // namespace canopy

int main(int argc, char** argv) {
  try {
    return canopy::run_all(argc, argv);
  } catch (const std::exception& e) {
    std::cerr << "bench_linear: " << e.what() << "\n";
    return 1;
  }
}
#endif  // HWY_ONCE
