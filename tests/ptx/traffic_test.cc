// The work that kernels make for a card, by instructions as nvcc wrote them down: what
// traffic_of_nvcc.json has of a few calls of usual shapes, written there by scripts/ptx_traffic.
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/base/formats/fp8_format.h"
#include "src/convert/pack/pack_row.h"
#include "tests/kernels/delta_cases.h"
#include "tests/ptx/nvcc_kernels.h"

namespace canopy::ptx {
namespace {

constexpr const char* kTable = CANOPY_PTX_SOURCE "/traffic_of_nvcc.json";

class KernelTraffic : public NvccKernels {
 protected:
  void run_all() {
    run_rows();
    run_products();
    run_attention(8);
    run_attention(64);
    run_delta();
    run_sampling();
  }

  /// Measures each kernel that ran: instructions of warps, bytes of sectors for each byte that
  /// lanes asked for, and turns of the banks for each that there must be.
  nlohmann::json measured() const {
    nlohmann::json kernels = nlohmann::json::object();
    for (const Kernel* const kernel : runner().module().used()) {
      Traffic all;
      for (const Traffic& one : kernel->traffic) {
        all.sectors += one.sectors;
        all.bytes += one.bytes;
        all.turns += one.turns;
        all.at_least += one.at_least;
      }
      auto& of = kernels[kernel->name];
      of["instructions"] = kernel->warp_instructions;
      if (all.bytes != 0) of["sectors"] = rounded(32 * all.sectors, all.bytes);
      if (all.at_least != 0) of["banks"] = rounded(all.turns, all.at_least);
    }
    return kernels;
  }

 private:
  static double rounded(std::uint64_t a, std::uint64_t b) {
    return std::round(100.0 * static_cast<double>(a) / static_cast<double>(b)) / 100;
  }
  TensorView halves(DType dtype, std::initializer_list<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    return {send(random_weights(dtype, 1, static_cast<std::size_t>(count), random())), dtype,
            shape};
  }
  TensorView numbers(const std::vector<std::int32_t>& values) {
    return {send(values), DType::kI32, {dim(values.size())}};
  }
  WeightView weights(DType format, std::int64_t rows, std::int64_t columns) {
    if (const CompanionFormat* const fp8 = find_fp8_format(format)) {
      const std::vector<std::byte> codes(static_cast<std::size_t>(rows * columns), std::byte{0x38});
      const std::vector<float> scales(fp8->bytes(rows, columns) / sizeof(float), 0.01f);
      return {{send(codes), codes.size()}, {fp8, send(scales)}, format, rows, columns};
    }
    if (const PackedFormat* const of = find_packed_format(format))
      return packed(*of, rows, columns);
    return {send(random_weights(format, static_cast<std::size_t>(rows),
                                static_cast<std::size_t>(columns), random())),
            format, rows, columns};
  }
  WeightView packed(const PackedFormat& format, std::int64_t rows, std::int64_t columns) {
    std::normal_distribution<float> normal;
    std::vector<std::byte> bytes;
    std::vector<std::size_t> row_bytes;
    visit_format(PackedFormats(), format.dtype, [&]<class Packed>(Packed of) {
      std::vector<typename Packed::Plain::Element> row(static_cast<std::size_t>(columns));
      for (std::int64_t i = 0; i < rows; ++i) {
        for (auto& bits : row)
          if constexpr (kPacksFp8<Packed>)
            bits = format::e4m3_from_f32(112 * normal(random()));
          else
            bits = bf16_from_f32(0.02f * normal(random()));
        const std::size_t before = bytes.size();
        EXPECT_TRUE(pack_row(of, row, bytes));
        row_bytes.push_back(bytes.size() - before);
      }
    });
    const CompanionFormat* const fp8 = find_fp8_format(format.plain);
    const std::vector<float> scales(fp8 ? fp8->bytes(rows, columns) / sizeof(float) : 0, 0.01f);
    const Companion companion = companion_of_rows(format, row_bytes, columns, scales);
    const auto of_companion = companion.bytes();
    return {
        {send(bytes), bytes.size()},
        {format.companion, send(std::vector<std::byte>(of_companion.begin(), of_companion.end()))},
        format.dtype,
        rows,
        columns};
  }

  void run_rows() {
    constexpr std::int64_t kRows = 4, kColumns = 2048;
    const TensorView x = floats({kRows, kColumns}), y = floats({kRows, kColumns});
    ops().rms_norm(stream(), x, halves(DType::kBF16, {kColumns}), 1e-5f, y);
    ops().layer_norm(stream(), x, {floats({kColumns}), floats({kColumns}), 1e-5f}, y);
    ops().rope(stream(), {x.data(), DType::kF32, {kRows, 16, 128}}, numbers({3, 4, 5, 90}),
               {.inverse_frequency = floats({64})});
    ops().swiglu(stream(), x, y, y);
    ops().embed(
        stream(),
        {send(random_weights(DType::kBF16, 8, kColumns, random())), DType::kBF16, 8, kColumns},
        numbers({1, 7, 0, 7}), y);
  }
  /// Few rows, and so many that weights are expanded first.
  void run_products() {
    constexpr std::int64_t kColumns = 512, kOutputs = 64;
    using enum DType;
    for (const std::int64_t n : {1, 64})
      for (const DType format : {kQ4_0, kQ4_K, kQ6_K, kQ8_0, kIQ2_XXS, kIQ4_XS, kMXFP4, kNVFP4,
                                 kF4_256, kI4_128, kI8_128, kE4M3Blocks, kE4M3Rows, kPackedBF16,
                                 kLevelsBF16, kLevelsE4M3Blocks, kLevelsE4M3Rows}) {
        const std::array one{
            Projection{weights(format, kOutputs, kColumns), {}, floats({n, kOutputs})}};
        ops().linear(stream(), floats({n, kColumns}), one);
      }
  }
  void run_attention(std::int64_t n) {
    constexpr std::int64_t kHeads = 8, kKvHeads = 2, kColumns = 128, kBlocks = 10,
                           kSlots = kBlocks * kKvBlock;
    const auto cache = [&] {
      return TensorView(halves(DType::kBF16, {kBlocks, kKvHeads, kKvBlock, kColumns}).data(),
                        DType::kBF16, {kKvHeads, kKvBlock, kColumns});
    };
    TreeAttention call;
    call.q = floats({n, kHeads, kColumns});
    call.kv = {cache(), cache(), numbers({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}),
               kKvHeads * kKvBlock * kColumns * 2};
    call.prefix = kSlots - 64;
    call.scale = 0.1f;
    call.out = floats({n, kHeads, kColumns});
    ops().store_kv(stream(), floats({n, kKvHeads, kColumns}), floats({n, kKvHeads, kColumns}),
                   call.prefix, 0, call.kv);
    ops().attend(stream(), call);
  }
  /// A text whose state moves on, and then a few nodes.
  void run_delta() {
    constexpr std::size_t kText = kAnchorStep, kNodes = 8, kHeads = 4, kColumns = 128;
    const DeltaSizes size{2, kHeads, kColumns, kColumns};
    const DeltaLayer layer(size, kText + kNodes, 1);
    KeptRows kept(device(), stream(), size, kText + kNodes, 2);
    TextRun run(device(), stream(), size, layer, kept);
    std::vector<std::size_t> rows(kText + kNodes);
    std::iota(rows.begin(), rows.end(), 0);
    run.nodes(0, 0, {rows.begin(), rows.begin() + kText}, {}, {});
    ops().delta_fold(stream(), {kept.view(), {}, floats({kHeads, kColumns, kColumns})});
    run.nodes(kText, 0, {rows.begin() + kText, rows.end()}, {}, {});
    const TensorView x = floats({kNodes, kHeads * kColumns});
    ops().gated_norm(stream(), {x, floats({kHeads * kColumns}), x, 1e-5f});
    const TensorView heads(x.data(), DType::kF32, {kNodes, kHeads, kColumns}),
        fused = floats({kNodes, kHeads, 2, kColumns});
    ops().take_apart(stream(),
                     TensorView(fused.data(), DType::kF32, {kNodes, kHeads, 2 * kColumns}),
                     {{{kColumns, x}, {kColumns}}});
    ops().gate_heads(stream(), fused, heads);
  }
  void run_sampling() {
    constexpr std::int64_t kRows = 2, kVocab = 16000, kDraws = 4;
    const TensorView logits = floats({kRows, kVocab}), p = floats({kRows, kVocab});
    const TensorView tokens = numbers(std::vector<std::int32_t>(kRows * kDraws));
    const TensorView drawn(tokens.data(), DType::kI32, {kRows, kDraws});
    ops().probabilities(stream(), logits, {.temperature = 0.6f, .top_p = 0.9f}, p);
    ops().top_tokens(stream(), logits, kDraws, drawn);
    ops().top_probabilities(stream(), logits, 0.6f,
                            {drawn, floats({kRows, kDraws}), floats({kRows})});
    ops().draw_tokens(stream(), p, kDraws, Replacement::kNo, StepRng{}, 0, drawn);
  }
};

TEST_F(KernelTraffic, IsThatOfTheTable) {
  std::ifstream in(kTable);
  const nlohmann::json table = nlohmann::json::parse(in);
  const std::string release = table.at("nvcc");
  start(text());
  if (runner().module().compiler() != release && std::getenv("CANOPY_PTX_WRITE") == nullptr)
    GTEST_SKIP() << "the table is of nvcc " << release << ", the kernels are of "
                 << runner().module().compiler();
  run_all();
  ASSERT_EQ(found(), "");
  const nlohmann::json kernels = measured();
  if (const char* const to = std::getenv("CANOPY_PTX_WRITE")) {
    std::ofstream(to)
        << nlohmann::json{{"nvcc", runner().module().compiler()}, {"kernels", kernels}}.dump(1)
        << "\n";
    return;
  }
  constexpr double kMargin = 0.05;  // compilers of one release differ a little
  for (const auto& [kernel, expected] : table.at("kernels").items()) {
    if (!kernels.contains(kernel)) {
      ADD_FAILURE() << kernel << " did not run";
      continue;
    }
    for (const auto& [what, value] : expected.items())
      EXPECT_NEAR(kernels[kernel].value(what, 0.0), value.get<double>(),
                  kMargin * value.get<double>())
          << kernel << ", " << what << ": if that is better, scripts/ptx_traffic writes it down";
  }
  EXPECT_EQ(kernels.size(), table.at("kernels").size());
}

}  // namespace
}  // namespace canopy::ptx
