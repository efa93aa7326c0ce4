// A format that this file alone knows, with a companion: a byte of each weight, and a scale for
// each block of 128 x 128 of them. A model of it streams from a file, its head is cut between
// blocks, it is copied to a device with memory of its own, and multiplied there and by the CPU's
// tiles through their templates. A real one adds to src/base: an enumerator in dtype.h, the struct
// and its name in a list of MatrixFormats; and to src/checkpoint how its scales are read. This one
// touched no file but this.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/offload/toy_scales_test.cc"
#include "hwy/foreach_target.h"  // before tile-inl.h
//
#include "hwy/aligned_allocator.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/unpack.h"
#include "offload/upload/device_weights.h"
#include "src/convert/pack/pack.h"
#include "tests/kernels/on_device.h"
#include "tests/offload/sweeper.h"

#ifndef CANOPY_TESTS_TOY_SCALES_ONCE
#define CANOPY_TESTS_TOY_SCALES_ONCE
namespace canopy {

/// A row is {i8 code[columns]}, the companion f32 scale[ceil(rows / 128)][ceil(columns / 128)]; a
/// weight is code x scale.
struct Toy {
  static constexpr DType kDType = static_cast<DType>(202);
  static constexpr const char* kName = "toy with scales";
  static constexpr std::int64_t kSide = 128, kSliceUnit = kSide;
  static constexpr std::int64_t blocks(std::int64_t length) { return (length + kSide - 1) / kSide; }
  static std::size_t companion_bytes(std::int64_t rows, std::int64_t columns) {
    return static_cast<std::size_t>(blocks(rows) * blocks(columns)) * sizeof(float);
  }
  static std::size_t fixed_bytes(std::int64_t columns) { return static_cast<std::size_t>(columns); }
  static RowPlace place_of_row(const std::byte* companion, std::int64_t columns, std::int64_t i) {
    return {static_cast<std::size_t>(i * columns), static_cast<std::size_t>(columns),
            companion + companion_bytes(i / kSide * kSide, columns)};
  }
  static float decode(const StoredRow& row, std::int64_t k) {
    const auto code = std::to_integer<std::int8_t>(row.data[k]);
    return static_cast<float>(code) *
           format::load<float>(row.companion + k / kSide * std::int64_t{sizeof(float)});
  }
  static void check_companion(std::span<const std::byte> companion, std::int64_t, std::int64_t) {
    for (std::size_t at = 0; at < companion.size(); at += sizeof(float))
      if (!std::isfinite(format::load<float>(companion.data() + at)))
        throw Error("scale " + std::to_string(at / sizeof(float)) + " is not finite");
  }
};

}  // namespace canopy
#endif  // CANOPY_TESTS_TOY_SCALES_ONCE

HWY_BEFORE_NAMESPACE();
namespace canopy::cpu {
namespace HWY_NAMESPACE {

/// y [m, ld] = x [m, k] W^T with rows [first, first + count) of W. packed and panels: aligned.
void multiply_toy(const float* x, std::size_t m, const WeightView& w, std::size_t first,
                  std::size_t count, float* packed, float* panels, float* y) {
  const auto k = static_cast<std::size_t>(w.columns());
  for (std::size_t k0 = 0; k0 < k; k0 += kBlock) pack_block(x, m, k, k0, packed);
  products(packed, m, 0, m, weight_rows<Toy>(w, first, count), y,
           (count + kTileColumns - 1) / kTileColumns * kTileColumns, panels);
}

}  // namespace HWY_NAMESPACE
}  // namespace canopy::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace canopy {
namespace cpu {
HWY_EXPORT(multiply_toy);
inline auto toy_multiplier() { return HWY_DYNAMIC_DISPATCH(multiply_toy); }
}  // namespace cpu
namespace {

using test::TinyCheckpoint;
using test::write_file;

/// The weights of a matrix by their definition, in double.
struct Values {
  std::size_t rows, columns;
  std::vector<double> of;
  double operator()(std::size_t i, std::size_t k) const { return of[i * columns + k]; }
};

/// A model whose matrices are of the toy format, but for the table of embeddings.
struct ToyModel {
  std::map<std::string, Values> values;
  std::optional<Checkpoint> checkpoint;
  SweepLayout sweep;
};

TensorEntry random_toy(const std::string& name, std::size_t rows, std::size_t columns,
                       std::vector<std::byte>& file, std::mt19937& random, ToyModel& model) {
  std::uniform_real_distribution<float> uniform(0.001f, 0.01f);
  const std::size_t across = (columns + 127) / 128;
  std::vector<float> scales((rows + 127) / 128 * across);
  for (float& scale : scales) scale = uniform(random);
  TensorEntry entry{name, Toy::kDType, {dim(rows), dim(columns)}, 0, file.size(), rows * columns};
  Values& values = model.values[name] = {rows, columns, {}};
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t k = 0; k < columns; ++k) {
      const auto code = static_cast<std::int8_t>(random());
      file.push_back(static_cast<std::byte>(code));
      const float value = static_cast<float>(code) * scales[i / 128 * across + k / 128];
      values.of.push_back(static_cast<double>(value));
    }
  entry.companion = {kCompanionOf<Toy>, bytes_of(scales), dim(rows), dim(columns), rows * columns};
  return entry;
}

ToyModel make_toy(const std::filesystem::path& directory, std::size_t hidden, std::size_t vocab,
                  int kv_heads = 2) {
  ModelConfig c;
  c.architecture = "llama";
  c.layers = 2;
  c.dim = 200;  // not whole blocks
  c.hidden_dim = static_cast<int>(hidden);
  c.heads = 2 * kv_heads;
  c.kv_heads = kv_heads;
  c.head_dim = 16;
  c.vocab = static_cast<int>(vocab);
  const auto kv = static_cast<std::size_t>(c.kv_heads * c.head_dim);
  std::mt19937 random(7);
  ToyModel model;
  std::vector<TensorEntry> tensors;
  std::vector<std::byte> file(3);  // tensors lie at odd bytes
  const auto matrix = [&](const std::string& name, std::size_t rows, std::size_t columns) {
    tensors.push_back(random_toy(name, rows, columns, file, random, model));
  };
  const auto plain = [&](const std::string& name, std::vector<std::int64_t> shape) {
    const std::uint64_t bytes = tensor_bytes(DType::kBF16, shape);
    tensors.push_back({name, DType::kBF16, std::move(shape), 0, file.size(), bytes});
    for (std::uint64_t at = 0; at < bytes; at += 2) {
      file.push_back(static_cast<std::byte>(random()));
      file.push_back(std::byte{0x3f});
    }
  };
  plain("model.embed_tokens.weight", {c.vocab, c.dim});
  plain("model.norm.weight", {c.dim});
  for (int layer = 0; layer < c.layers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    plain(at + "input_layernorm.weight", {c.dim});
    plain(at + "post_attention_layernorm.weight", {c.dim});
    matrix(at + "self_attn.q_proj.weight", 2 * kv, 200);
    matrix(at + "self_attn.k_proj.weight", kv, 200);
    matrix(at + "self_attn.v_proj.weight", kv, 200);
    matrix(at + "self_attn.o_proj.weight", 200, 2 * kv);
    matrix(at + "mlp.gate_proj.weight", hidden, 200);
    matrix(at + "mlp.up_proj.weight", hidden, 200);
    matrix(at + "mlp.down_proj.weight", 200, hidden);
  }
  matrix("lm_head.weight", vocab, 200);
  const auto path = write_file(directory / "toy", file);
  model.checkpoint.emplace(directory, std::vector{path}, std::move(tensors), c, Metadata());
  model.sweep = lay_out_sweep(*model.checkpoint);
  return model;
}

/// Row i of x times row j of the values, and the sum of the terms' magnitudes.
std::pair<double, double> dot(const std::vector<float>& x, std::size_t i, const Values& w,
                              std::size_t j) {
  double sum = 0, absolute = 0;
  for (std::size_t k = 0; k < w.columns; ++k) {
    const double term = static_cast<double>(x[i * w.columns + k]) * w(j, k);
    sum += term, absolute += std::abs(term);
  }
  return {sum, absolute};
}

/// Expects the products with rows [first, first + view.rows()) of the values, by the CPU's tiles.
void expect_products(const WeightView& view, const Values& w, std::size_t first,
                     std::mt19937& random) {
  ASSERT_EQ(view.columns(), dim(w.columns));
  for (const std::size_t m : {1u, 6u, 96u}) {
    const std::vector<float> x = random_floats(m * w.columns, random);
    // A strip from anywhere, as the workers take them.
    const std::size_t rows = static_cast<std::size_t>(view.rows()), skip = rows / 3,
                      count = std::min<std::size_t>(rows - skip, 150), ld = (count + 3) / 4 * 4;
    std::vector<float> y(m * ld);
    const auto packed = hwy::AllocateAligned<float>(m * (w.columns + cpu::kMaxLanes));
    const auto panels = hwy::AllocateAligned<float>(cpu::kPanelFloats);
    cpu::toy_multiplier()(x.data(), m, view, skip, count, packed.get(), panels.get(), y.data());
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < count; ++j) {
        const auto [sum, absolute] = dot(x, i, w, first + skip + j);
        // math.md (C2)
        ASSERT_NEAR(y[i * ld + j], sum, static_cast<double>(w.columns + 7) * kEps * absolute)
            << "row " << first + skip + j;
      }
  }
}

/// Calls body(view, values, first row) for each matrix of a sweep.
template <class Body>
void for_each_matrix(const ToyModel& model, WeightSource& source, Stream& compute,
                     const Body& body) {
  for (std::size_t i = 0; i < model.sweep.units.size(); ++i) {
    const UnitLayout& layout = model.sweep.units[i];
    const UnitLease lease = source.acquire(i, compute);
    compute.synchronize();
    for (const UnitTensor& matrix : layout.matrices) {
      SCOPED_TRACE(describe(layout.unit) + ", " + matrix.tensor.name);
      body(lease->matrix(matrix.role), model.values.at(matrix.tensor.name),
           static_cast<std::size_t>(layout.unit.first_row));
    }
  }
}

TEST(ToyScales, StreamAndAreMultipliedByTheTilesOfEveryInstructionSet) {
  const TempDir dir;
  const ToyModel model = make_toy(dir.path(), 320, 1504);
  const auto device = make_device({.kind = "cpu", .threads = 1});
  const Residency residency = none_resident(model.sweep);
  Streamer streamer(*device, model.sweep, residency,
                    {.ring_bytes = least_ring(model.sweep, residency), .read_bytes = 4096});
  const auto compute = device->make_stream("compute");
  std::mt19937 random(3);
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    for_each_matrix(model, streamer, *compute,
                    [&](const WeightView& view, const Values& values, std::size_t first) {
                      expect_products(view, values, first, random);
                    });
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(ToyScales, TheHeadIsCutBetweenBlocksHoweverSmallTheUnitsAre) {
  const TempDir dir;
  for (const std::size_t hidden : {8u, 320u}) {
    // The largest unit of the small model has no block of the head's bytes.
    const ToyModel model = make_toy(dir.path(), hidden, 1500, hidden == 8 ? 1 : 2);
    if (hidden == 8) {
      EXPECT_LT(model.sweep.units[0].read.slab_bytes, 128u * 200);
    }
    std::int64_t rows = 0;
    int slices = 0;
    for (const UnitLayout& layout : model.sweep.units) {
      if (layout.unit.kind != UnitKind::kHead) continue;
      EXPECT_EQ(layout.unit.first_row, rows);
      EXPECT_EQ(layout.unit.first_row % Toy::kSide, 0);
      rows += layout.unit.rows;
      ++slices;
    }
    EXPECT_EQ(rows, 1500);
    EXPECT_GT(slices, 1);
  }
}

/// Runs a kernel of kernels/cuda here.
template <class Kernel>
void run(const Kernel& kernel, const cuda::Grid& grid) {
  for (std::int64_t index = 0; index < grid.blocks; ++index) {
    SerialBlock block(index, grid);
    kernel(block);
  }
}

/// Expects what the CUDA kernels look up, expand and multiply to be of those values.
void expect_of_kernels(const WeightView& view, const Values& w, std::size_t first,
                       std::mt19937& random) {
  const cuda::MatrixRows<Toy> rows{view.payload(), view.companion().data, view.columns()};
  cuda::Fault fault;
  const std::vector<std::int32_t> ids{static_cast<std::int32_t>(view.rows() - 1), 0};
  std::vector<float> looked_up(2 * w.columns);
  run(cuda::Embed<Toy>{rows, view.rows(), ids.data(), looked_up.data(), false, &fault}, {2, 64});
  EXPECT_EQ(fault.kind, cuda::Fault::kNone);
  const std::size_t from = static_cast<std::size_t>(view.rows()) / 2;
  std::vector<std::uint16_t> expanded(2 * w.columns);
  run(cuda::Dequantize<Toy>{rows, dim(from), reinterpret_cast<std::byte*>(expanded.data())},
      {2, 64});
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t k = 0; k < w.columns; ++k) {
      const std::size_t id = first + static_cast<std::size_t>(ids[i]);
      ASSERT_EQ(static_cast<double>(looked_up[i * w.columns + k]), w(id, k));
      ASSERT_EQ(expanded[i * w.columns + k],
                f16_from_f32(static_cast<float>(w(first + from + i, k))));
    }

  constexpr std::size_t kInputs = 3;
  std::vector<float> x = random_floats(kInputs * w.columns, random);
  std::vector<std::uint16_t> rounded;
  for (float& value : x) {
    rounded.push_back(f16_from_f32(value));
    value = f32_from_f16(rounded.back());
  }
  using Few = cuda::FewRows<Toy, format::F16>;
  std::vector<float> y(kInputs * static_cast<std::size_t>(view.rows()));
  run(Few{reinterpret_cast<const std::byte*>(rounded.data()), static_cast<int>(kInputs), rows,
          view.rows(), nullptr, y.data(), view.rows(), 0, false, 1},
      {(view.rows() + Few::kWarps - 1) / Few::kWarps, 32 * Few::kWarps});
  for (std::size_t i = 0; i < kInputs; ++i)
    for (std::size_t j = 0; j < static_cast<std::size_t>(view.rows()); ++j) {
      const auto [sum, absolute] = dot(x, i, w, first + j);
      // Weights are rounded to F16, half of an ulp each, in the subnormal range half of 2^-24.
      const double rounding = absolute * 0x1p-11 + static_cast<double>(w.columns) * 0x1p-25;
      ASSERT_NEAR(y[i * static_cast<std::size_t>(view.rows()) + j], sum,
                  rounding + static_cast<double>(w.columns + 7) * kEps * absolute);
    }
}

TEST(ToyScales, AreCopiedToADeviceFromEveryTierAndMultipliedThereByItsKernels) {
  const TempDir dir;
  const ToyModel model = make_toy(dir.path(), 320, 1504);
  EmulatedCuda device;
  Notes notes;
  Residency residency = none_resident(model.sweep);
  for (std::size_t i = 0; i < residency.unit.size(); ++i)
    residency.unit[i] = static_cast<Tier>(i % 3);
  auto host =
      std::make_unique<Streamer>(device, model.sweep, residency,
                                 StreamerOptions{.ring_bytes = least_ring(model.sweep, residency)});
  UploadedWeights source(device, model.sweep, residency, std::move(host), Loading{notes});
  source.begin(least_device_ring(model.sweep, residency), notes);
  const auto compute = device.make_stream("compute");
  std::mt19937 random(5);
  for (int sweep = 0; sweep < 2; ++sweep)
    for_each_matrix(model, source, *compute,
                    [&](const WeightView& view, const Values& values, std::size_t first) {
                      expect_of_kernels(view, values, first, random);
                    });
}

TEST(ToyScales, AreRefusedByNameWhereTheModelIsToBePacked) {
  const TempDir dir;
  const ToyModel model = make_toy(dir.path(), 8, 130);
  const std::string error =
      error_of([&] { pack(*model.checkpoint, dir.path() / "packed", 1, [](auto, auto) {}); });
  EXPECT_NE(error.find("is toy with scales"), std::string::npos) << error;
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "packed"));
}

TEST(ToyScales, OfAnotherMatrixAreRefusedWhereTheSweepIsLaidOut) {
  const TempDir dir;
  const ToyModel model = make_toy(dir.path(), 8, 130);
  std::vector<TensorEntry> tensors = model.checkpoint->tensors();
  for (TensorEntry& tensor : tensors)
    if (tensor.name == "lm_head.weight")
      tensor.companion = model.checkpoint->find("model.layers.0.mlp.up_proj.weight")->companion;
  const Checkpoint mixed(dir.path(), model.checkpoint->files(), tensors, model.checkpoint->config(),
                         Metadata());
  const std::string error = error_of([&] { lay_out_sweep(mixed); });
  EXPECT_NE(error.find("lm_head.weight"), std::string::npos) << error;
  EXPECT_NE(error.find("toy with scales [8, 200]"), std::string::npos) << error;
}

}  // namespace
}  // namespace canopy
#endif  // HWY_ONCE
