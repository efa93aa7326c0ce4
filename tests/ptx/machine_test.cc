#include "tests/ptx/machine.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>

#include "src/base/error.h"
#include "tests/ptx/tiny_kernels.h"

namespace canopy::ptx {
namespace {

using Words = std::vector<std::uint32_t>;

struct Grid {
  std::int64_t blocks = 1;
  int threads = 64;
  std::size_t shared_bytes = 0;
};

class Machine : public testing::TestWithParam<std::uint64_t> {
 protected:
  /// Runs tiny_kernel(body) over `words`, which it may change, and returns what was found.
  std::string run(const std::string& body, Words& words, const Grid& grid = {}) {
    Module module(tiny_kernel(body));
    return run(module, words, grid);
  }
  std::string run(Module& module, Words& words, const Grid& grid = {}) {
    GlobalMemory memory;
    memory.allocated(words.data(), words.size() * sizeof words[0]);
    const void* const argument = words.data();
    FoundFaults found;
    ptx::run(*module.find("tiny"),
             {std::as_bytes(std::span(&argument, 1)), grid.blocks, grid.threads, grid.shared_bytes},
             {GetParam()}, memory, found);
    return found.text();
  }
  std::string run(const std::string& body) {
    Words words(64);
    return run(body, words);
  }
};
INSTANTIATE_TEST_SUITE_P(InStepAndInRandomOrder, Machine, testing::Values(0, 1, 2, 3));

// Each thread hands its number to the one at the other end of the block.
constexpr const char* kSwap = R"(
	shl.b32 %r2, %r1, 2;
	mov.u32 %r3, shared;
	add.s32 %r4, %r3, %r2;
	st.shared.u32 [%r4], %r1;
	bar.sync 0;
	sub.s32 %r5, %r3, %r2;
	ld.shared.u32 %r6, [%r5+252];
	st.global.u32 [%rd2], %r6;)";

TEST_P(Machine, ThreadsExchangeValuesByMemoryThatTheyShare) {
  Words words(64);
  EXPECT_EQ(run(kSwap, words), "");
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(words[i], 63 - i);
}

TEST_P(Machine, ADroppedBarrierIsARaceOnSharedMemory) {
  EXPECT_TRUE(finds(run(with(kSwap, "bar.sync 0;", "")), "a race on shared memory"));
}

TEST_P(Machine, TwoThreadsThatWriteOneWordRace) {
  EXPECT_TRUE(finds(run(with(kSwap, "add.s32 %r4, %r3, %r2;", "mov.u32 %r4, %r3;")),
                    "a race on shared memory, another thread wrote it"));
  EXPECT_TRUE(
      finds(run("st.global.u32 [%rd1], %r1;"), "a race on global memory, another thread wrote it"));
}

TEST_P(Machine, BlocksRaceOnGlobalMemoryWhateverBarriersTheyHave) {
  Words words(64);
  EXPECT_TRUE(finds(run("st.global.u32 [%rd2], %r1;", words, {.blocks = 2}),
                    "a race on global memory, another block wrote it"));
  const char* const reads_then_writes = R"(
	mov.u32 %r2, %ctaid.x;
	setp.eq.s32 %p1, %r2, 0;
	@%p1 ld.global.u32 %r3, [%rd2];
	bar.sync 0;
	@!%p1 st.global.u32 [%rd2], %r1;)";
  EXPECT_TRUE(finds(run(reads_then_writes, words, {.blocks = 2}), "a race on global memory"));
  EXPECT_EQ(run("ld.global.u32 %r3, [%rd2]; bar.sync 0; st.global.u32 [%rd2], %r1;", words), "");
}

TEST_P(Machine, NeighboursWriteTheirOwnBytes) {
  EXPECT_EQ(run("cvt.u64.u32 %rd3, %r1; add.s64 %rd3, %rd1, %rd3; st.global.u8 [%rd3], %r1;"), "");
  EXPECT_TRUE(finds(run("shr.u32 %r2, %r1, 1; cvt.u64.u32 %rd3, %r2; add.s64 %rd3, %rd1, %rd3;"
                        "st.global.u8 [%rd3], %r1;"),
                    "a race on global memory"));
}

TEST_P(Machine, AtomicSumsDoNotRaceButWithWhatIsNotAtomic) {
  const std::string clear = R"(
	setp.eq.s32 %p1, %r1, 0;
	@%p1 st.shared.u32 [shared], 0;
	bar.sync 0;
	atom.shared.add.u32 %r3, [shared], 2;)";
  const std::string write = "ld.shared.u32 %r4, [shared]; st.global.u32 [%rd2], %r4;";
  Words words(64);
  EXPECT_EQ(run(clear + "bar.sync 0;" + write, words), "");
  EXPECT_EQ(words, Words(64, 128));
  EXPECT_TRUE(finds(run(clear + write), "a race on shared memory"));
}

TEST_P(Machine, AnAddressOffByOneIsSeen) {
  EXPECT_TRUE(finds(run("st.global.u32 [%rd2+4], %r1;"), "outside the device's memory"));
  EXPECT_TRUE(finds(run("st.global.u32 [%rd2+-4], %r1;"), "outside the device's memory"));
  EXPECT_TRUE(finds(run("ld.global.u32 %r2, [%rd2+1];"), "misaligned"));
  EXPECT_TRUE(finds(run("ld.global.v2.u32 {%r2, %r3}, [%rd2];"), "misaligned"));
  EXPECT_TRUE(finds(run(with(kSwap, "[%r5+252]", "[%r5+256]")), "outside shared memory"));
  EXPECT_TRUE(finds(run(with(kSwap, "[%r5+252]", "[%r5+250]")), "misaligned"));
  EXPECT_TRUE(finds(run("ld.param.u64 %rd3, [tiny_param_0+8];"), "the kernel's arguments"));
}

TEST_P(Machine, SharedMemoryThatNobodyHasWrittenIsNotRead) {
  EXPECT_TRUE(finds(run(with(kSwap, "st.shared.u32 [%r4], %r1;", "")),
                    "shared memory is read before it is written"));
}

// Sums of a warp, as kernels/cuda/launch.cuh has them.
constexpr const char* kShuffle = R"(
	shfl.sync.bfly.b32 %r2|%p1, %r1, 16, 31, -1;
	st.global.u32 [%rd2], %r2;)";

TEST_P(Machine, LanesExchangeValues) {
  Words words(64);
  EXPECT_EQ(run(kShuffle, words), "");
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(words[i], i ^ 16);
  EXPECT_EQ(run(R"(
	and.b32 %r2, %r1, 3;
	match.any.sync.b32 %r3, %r2, -1;
	redux.sync.add.u32 %r4, %r1, %r3;
	st.global.u32 [%rd2], %r4;)",
                words),
            "");
  EXPECT_EQ(words[1], 1 + 5 + 9 + 13 + 17 + 21 + 25 + 29);
  EXPECT_EQ(words[38], 34 + 38 + 42 + 46 + 50 + 54 + 58 + 62);
}

TEST_P(Machine, AWrongMaskIsSeen) {
  EXPECT_TRUE(finds(run(with(kShuffle, "-1", "0x7fffffff")), "leaves this lane out"));
  EXPECT_TRUE(finds(run(with(kShuffle, "16, 31, -1", "1, 31, 0x55555555")), "leaves"));
  const std::string few = "setp.lt.u32 %p2, %r1, 8; @%p2 bra few; bra rest; few:";
  EXPECT_TRUE(
      finds(run(few + with(kShuffle, "16, 31", "4, 31") + "rest:"), "names a lane that has ended"));
  EXPECT_EQ(run(few + with(kShuffle, "16, 31, -1", "4, 31, 255") + "rest:"), "");
  EXPECT_TRUE(finds(run(few + with(kShuffle, "16, 31, -1", "16, 31, 255") + "rest:"),
                    "of a lane that its mask leaves out"));
  EXPECT_TRUE(finds(
      run(few + with(kShuffle, "16", "4") + "bra end; rest:" + with(kShuffle, "16", "4") + "end:"),
      "waits for lanes that never come"));
  EXPECT_TRUE(finds(run("redux.sync.add.u32 %r2, %r1, 0xffff;"), "leaves this lane out"));
  EXPECT_TRUE(finds(run("match.any.sync.b32 %r2, %r1, 0xffff;"), "leaves this lane out"));
}

TEST_P(Machine, ABarrierIsForAllThreads) {
  EXPECT_TRUE(finds(run("setp.lt.u32 %p1, %r1, 40; @%p1 bra end; bar.sync 0; end:"),
                    "a barrier after some threads have ended"));
  EXPECT_TRUE(
      finds(run("setp.lt.u32 %p1, %r1, 40; @%p1 bra two; bar.sync 0; bra end; two: bar.sync 0;"
                "end:"),
            "at two barriers"));
}

TEST_P(Machine, LoopsOfDifferentLengthsMeetAgain) {
  Words words(64);
  EXPECT_EQ(run(R"(
	mov.u32 %r2, 0;
	mov.u32 %r3, 0;
	again:
	setp.ge.u32 %p1, %r2, %r1;
	@%p1 bra done;
	add.s32 %r2, %r2, 1;
	add.s32 %r3, %r3, %r2;
	bra.uni again;
	done:
	shfl.sync.bfly.b32 %r4, %r3, 0, 31, -1;
	st.global.u32 [%rd2], %r4;)",
                words),
            "");
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(words[i], i * (i + 1) / 2);
}

TEST_P(Machine, ALaunchMustFitTheKernelAndTheCard) {
  Words words(128);
  EXPECT_TRUE(finds(run(kSwap, words, {.threads = 96}), "96 threads"));
  EXPECT_TRUE(finds(run(kSwap, words, {.threads = 48}), "48 threads"));
  EXPECT_TRUE(finds(run(kSwap, words, {.shared_bytes = kMostSharedBytes}), "shared memory"));
  EXPECT_TRUE(finds(run(kSwap, words, {.blocks = std::int64_t{1} << 31}), "2147483648 blocks"));
  Module other(with(tiny_kernel(kSwap), "param_0[8]", "param_0[16]"));
  EXPECT_TRUE(finds(run(other, words), "8 bytes of arguments; the kernel takes 16"));
}

TEST(PtxParser, NamesTheLineThatItDoesNotKnow) {
  Module module(tiny_kernel("\tsin.approx.f32 %f1, %f2;"));
  try {
    module.find("tiny");
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(finds(error.what(), "line 20"));
    EXPECT_TRUE(finds(error.what(), "sin.approx.f32"));
  }
  EXPECT_THROW(Module("no kernel"), Error);
  EXPECT_THROW(Module(tiny_kernel("bra nowhere;")).find("tiny"), Error);
  EXPECT_THROW(Module(tiny_kernel("add.s32 %r1, %rd1, %r2;")).find("tiny"), Error);
  EXPECT_THROW(Module(tiny_kernel("ld.u32 %r1, [%rd1];")).find("tiny"), Error);
}

/// Returns what the first lane computes of its word in %r2; the result is in %r3.
std::uint32_t computed(const std::string& body, std::uint32_t in = 0) {
  Module module(
      tiny_kernel("ld.global.u32 %r2, [%rd2];\n" + body + "\nst.global.u32 [%rd2], %r3;"));
  Words words(32, in);
  GlobalMemory memory;
  memory.allocated(words.data(), words.size() * sizeof words[0]);
  const void* const argument = words.data();
  FoundFaults found;
  run(*module.find("tiny"), {std::as_bytes(std::span(&argument, 1))}, {}, memory, found);
  EXPECT_EQ(found.all, std::vector<std::string>());
  return words[0];
}
std::uint32_t bits(float value) {
  std::uint32_t in = 0;
  std::memcpy(&in, &value, sizeof in);
  return in;
}

TEST(PtxArithmetic, IsThatOfTheManual) {
  const std::uint32_t minus_seven = static_cast<std::uint32_t>(-7);
  EXPECT_EQ(computed("shr.s32 %r3, %r2, 40;", minus_seven), ~0u);
  EXPECT_EQ(computed("shl.b32 %r3, %r2, 32;", 5), 0u);
  EXPECT_EQ(computed("div.s32 %r3, %r2, 2;", minus_seven), static_cast<std::uint32_t>(-3));
  EXPECT_EQ(computed("rem.s32 %r3, %r2, 2;", minus_seven), ~0u);
  EXPECT_EQ(computed("mul.hi.s32 %r3, %r2, 2;", minus_seven), ~0u);
  EXPECT_EQ(computed("bfi.b32 %r3, %r2, 0, 8, 4;", 0x1f), 0xf00u);
  EXPECT_EQ(computed("prmt.b32 %r3, %r2, 0x44332211, 0x70c3;", 0x80aabbcc), 0x44cc0080u);
  EXPECT_EQ(computed("bfind.shiftamt.u32 %r3, %r2;", 1), 31u);
  EXPECT_EQ(computed("brev.b32 %r3, %r2;", 6), 0x60000000u);
  EXPECT_EQ(computed("mov.b32 {%rs1, %rs2}, %r2; mov.b32 %r3, {%rs2, %rs1};", 0x12345678),
            0x56781234u);
  EXPECT_EQ(computed("cvt.u16.u32 %rs1, %r2; cvt.s16.s8 %rs1, %rs1; cvt.s32.s16 %r3, %rs1;", 0x1f0),
            0xfffffff0u);
  EXPECT_EQ(computed("setp.ltu.f32 %p1, %f1, 0f7FC00000; selp.u32 %r3, 1, 2, %p1;"), 1u);
}

TEST(PtxArithmetic, RoundsAsTheNamesSay) {
  const auto of = [](const std::string& body, float x) {
    return computed("mov.b32 %f1, %r2;\n" + body + "\nmov.b32 %r3, %f2;", bits(x));
  };
  // 1 + 2^-30 lies just above a float, and 1 - 2^-30 just below one.
  EXPECT_EQ(of("fma.rm.f32 %f2, %f1, %f1, 0f3F800000;", 0x1p-15f), bits(1));
  EXPECT_EQ(of("neg.f32 %f3, %f1; fma.rm.f32 %f2, %f1, %f3, 0f3F800000;", 0x1p-15f),
            bits(1 - 0x1p-24f));
  EXPECT_EQ(of("add.rz.f32 %f2, %f1, 0f3F800000;", 0x1.8p-24f), bits(1));
  EXPECT_EQ(of("add.rz.f32 %f2, %f1, 0fBF800000;", -0x1.8p-24f), bits(-1));
  EXPECT_EQ(of("add.rz.f32 %f2, %f1, 0f3F800000;", -0x1p-26f), bits(1 - 0x1p-24f));
  EXPECT_EQ(of("fma.rn.f32 %f2, %f1, %f1, 0fBF800000;", 1 + 0x1p-12f), bits(0x1p-11f + 0x1p-24f));
  EXPECT_EQ(of("ex2.approx.ftz.f32 %f2, %f1;", 0), bits(1));
  EXPECT_EQ(of("ex2.approx.ftz.f32 %f2, %f1;", -140), bits(0));
  // A third has 20 bits of mantissa there.
  EXPECT_EQ(
      of("cvt.f64.f32 %fd1, %f1; rcp.approx.ftz.f64 %fd2, %fd1; cvt.rn.f32.f64 %f2, %fd2;", 3),
      bits(0x1.55555p-2f));
  EXPECT_EQ(of("max.f32 %f2, %f1, 0f7FC00000;", 3), bits(3));
  EXPECT_EQ(of("min.f32 %f2, %f1, 0f00000000;", -0.0f), bits(-0.0f));
  EXPECT_EQ(of("cvt.sat.f32.f32 %f2, %f1;", 7), bits(1));
  EXPECT_EQ(of("cvt.rn.bf16.f32 %rs1, %f1; cvt.u32.u16 %r4, %rs1; mov.b32 %f2, %r4;", 1 + 0x1p-8f),
            0x3f80u);
  EXPECT_EQ(of("cvt.rni.s32.f32 %r4, %f1; mov.b32 %f2, %r4;", 2.5f), 2u);
}

TEST(PtxTraffic, SectorsAndBanksAreThoseOfTheLanesAddresses) {
  const auto traffic_of = [](const std::string& body, std::size_t line) {
    Module module(tiny_kernel(body));
    std::vector<std::byte> bytes(32 * 64);
    GlobalMemory memory;
    memory.allocated(bytes.data(), bytes.size());
    const void* const argument = bytes.data();
    FoundFaults found;
    const Kernel& kernel = *module.find("tiny");
    run(kernel, {std::as_bytes(std::span(&argument, 1))}, {}, memory, found);
    return kernel.traffic[kernel.code.size() - 1 - line];
  };
  const std::string apart = "mul.wide.u32 %rd3, %r1, 64; add.s64 %rd3, %rd1, %rd3;\n";
  EXPECT_EQ(traffic_of(apart + "ld.global.u32 %r2, [%rd3];", 1).sectors, 32u);
  EXPECT_EQ(traffic_of(apart + "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd3];", 1).bytes, 512u);
  const auto own = traffic_of("ld.global.u32 %r2, [%rd2];", 1);
  EXPECT_EQ(own.bytes, 128u);
  EXPECT_GE(own.sectors, 4u);
  EXPECT_LE(own.sectors, 5u);  // as the array begins anywhere
  const auto banks = [&](const char* apart_by) {
    return traffic_of(
               std::string("mul.lo.u32 %r3, %r1, ") + apart_by + "; st.shared.u8 [%r3], %r1;", 1)
        .turns;
  };
  EXPECT_EQ(banks("4"), 1u);
  EXPECT_EQ(banks("8"), 2u);
  EXPECT_EQ(banks("1"), 1u);
}

}  // namespace
}  // namespace canopy::ptx
