// Faults planted in what nvcc wrote down are found.
#include <regex>

#include "tests/ptx/nvcc_kernels.h"

namespace canopy::ptx {
namespace {

class PlantedFaults : public NvccKernels {
 protected:
  /// The file with match number `number` of the pattern in one kernel in another form.
  std::string with_fault(const std::string& pattern, const std::string& form, int number = 0) {
    const std::size_t begin = text().find(
        ".visible .entry _ZN6canopy4cuda3runINS0_7RmsNormINS_6"
        "format4BF16E");
    const std::size_t end = std::min(text().find("\n}", begin), text().size());
    if (begin > text().size()) return "there is no such kernel";
    const std::string kernel = text().substr(begin, end - begin);
    const std::regex what(pattern);
    auto match = std::sregex_iterator(kernel.begin(), kernel.end(), what);
    for (; number > 0 && match != std::sregex_iterator(); --number) ++match;
    if (match == std::sregex_iterator()) return "the kernel lacks " + pattern;
    const std::size_t at = begin + static_cast<std::size_t>(match->position());
    return text().substr(0, at) + match->format(form) +
           text().substr(at + static_cast<std::size_t>(match->length()));
  }
  /// Normalises some rows, in step or at random.
  std::string norm(const std::string& ptx, Order order = {}) {
    start(ptx, order);
    constexpr std::int64_t kColumns = 512;
    const TensorView x = floats({3, kColumns}), y = floats({3, kColumns});
    const TensorView g(send(std::vector<std::uint16_t>(kColumns, 0x3f80)), DType::kBF16,
                       {kColumns});
    ops().rms_norm(stream(), x, g, 1e-5f, y);
    return found();
  }
};

TEST_F(PlantedFaults, ThereAreNoneInTheKernelAsItIs) {
  EXPECT_EQ(norm(text()), "");
  for (std::uint64_t seed = 1; seed < 4; ++seed) EXPECT_EQ(norm(text(), {seed}), "");
}

TEST_F(PlantedFaults, ADroppedBarrierIsFound) {
  const std::string fault = with_fault("bar\\.sync\\s+0;", "", 1);
  EXPECT_TRUE(finds(norm(fault), "a race on shared memory"));
  EXPECT_TRUE(finds(norm(fault, {5}), "a race on shared memory"));
}

TEST_F(PlantedFaults, AWrongMaskIsFound) {
  const std::string fault = with_fault("(mov\\.[bu]32\\s+%r\\d+, )-1;", "$012147483647;");
  EXPECT_TRUE(finds(norm(fault), "leaves this lane out"));
}

TEST_F(PlantedFaults, AnAddressOffByOneIsFound) {
  const std::string store = "(st\\.global\\.f32\\s+\\[%rd\\d+)\\]";
  EXPECT_TRUE(finds(norm(with_fault(store, "$1+4]")), "outside the device's memory"));
  EXPECT_TRUE(finds(norm(with_fault(store, "$1+2]")), "misaligned"));
  EXPECT_TRUE(finds(norm(with_fault("(ld\\.shared\\.f32\\s+%f\\d+, \\[_\\w+)\\]", "$1+124]")),
                    "shared memory is read before it is written"));
}

TEST_F(PlantedFaults, ThreadsThatWriteWhatOthersWriteAreFound) {
  EXPECT_TRUE(finds(norm(with_fault("%tid\\.x", "%laneid")), "a race on global memory"));
  EXPECT_TRUE(finds(norm(with_fault("%ctaid\\.x", "1", 1)), "another block wrote it"));
}

TEST_F(PlantedFaults, ALaunchOfTooManyThreadsIsFound) {
  EXPECT_TRUE(finds(norm(with_fault("\\.maxntid 1024", ".maxntid 128")), "at most 128"));
}

}  // namespace
}  // namespace canopy::ptx
