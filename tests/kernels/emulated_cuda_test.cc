// Calls that the emulated GPU refuses, as a GPU does; and the code between the two and their
// callers.
#include "tests/kernels/emulated_cuda.h"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "kernels/pinned_ranges.h"
#include "tests/error_of.h"

namespace canopy {
namespace {

using Pieces = std::vector<std::pair<std::ptrdiff_t, std::size_t>>;

TEST(PinnedRanges, ACopyIsCutWhereLocksBeginAndEnd) {
  std::vector<std::byte> memory(100);
  PinnedRanges ranges;
  const auto part = [&](std::size_t begin, std::size_t bytes) {
    return std::span<const std::byte>(memory).subspan(begin, bytes);
  };
  const auto cut = [&](std::size_t begin, std::size_t bytes) {
    Pieces pieces;
    ranges.cut(part(begin, bytes), [&](std::span<const std::byte> piece) {
      pieces.emplace_back(piece.data() - memory.data(), piece.size());
    });
    return pieces;
  };
  EXPECT_EQ(cut(0, 100), (Pieces{{0, 100}}));
  ranges.add(part(20, 20));
  ranges.add(part(40, 20));
  ranges.add(part(70, 10));
  EXPECT_EQ(cut(0, 100), (Pieces{{0, 20}, {20, 20}, {40, 20}, {60, 10}, {70, 10}, {80, 20}}));
  EXPECT_EQ(cut(21, 19), (Pieces{{21, 19}}));
  EXPECT_EQ(cut(39, 2), (Pieces{{39, 1}, {40, 1}}));
  EXPECT_EQ(cut(60, 10), (Pieces{{60, 10}}));
  EXPECT_EQ(cut(5, 0), Pieces{});
  ranges.remove(memory.data() + 40);
  EXPECT_EQ(cut(20, 50), (Pieces{{20, 20}, {40, 30}}));
}

TEST(EmulatedCuda, CopiesCrossLocksAtAnyAddress) {
  EmulatedCuda device;
  constexpr std::size_t kPage = 4096;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kPage, 4 * kPage));
  for (std::size_t i = 0; i < 4 * kPage; ++i) memory[i] = static_cast<std::byte>(i * 7);
  {
    const auto first = device.pin({memory, kPage}), second = device.pin({memory + kPage, kPage});
    const auto stream = device.make_stream("copies");
    const Buffer on_device = device.allocate(4 * kPage);
    for (const std::size_t offset : {0, 1, 2, 3, 7, 8, 64, 4095}) {
      const std::span<const std::byte> from(memory + offset, 2 * kPage + 5);
      device.upload(*stream, on_device.data(), from);
      std::vector<std::byte> back(from.size());
      device.download(*stream, back, on_device.data());
      stream->synchronize();
      EXPECT_TRUE(std::equal(back.begin(), back.end(), from.begin())) << offset;
    }
  }
  std::free(memory);
}

TEST(SmallUploads, ArriveWholeFromAnyAddressToAnyAddressWithoutTheCopyEngine) {
  using Uploads = cuda::SmallUploads<SerialLaunch>;
  EmulatedCuda device;
  const auto stream = device.make_stream("copies");
  const Buffer on_device = device.allocate(Uploads::kMost + 64);
  std::vector<std::byte> data(Uploads::kMost + 64), back(data.size());
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 31 >> 3);
  for (const std::size_t size : {std::size_t{1}, std::size_t{15}, std::size_t{16}, std::size_t{33},
                                 std::size_t{4101}, Uploads::kMost - 1, Uploads::kMost})
    for (const std::size_t offset : {0, 1, 4, 16}) {
      const std::vector<std::byte> zeros(data.size());
      device.upload(*stream, on_device.data(), zeros);
      device.upload(*stream, on_device.data() + offset,
                    std::span<const std::byte>(data).subspan(offset + 3, size));
      device.download(*stream, back, on_device.data());
      stream->synchronize();
      for (std::size_t i = 0; i < back.size(); ++i)
        ASSERT_EQ(back[i], i < offset || i >= offset + size ? std::byte{} : data[i + 3])
            << size << " bytes to +" << offset << ", byte " << i;
    }
  EXPECT_EQ(device.largest_copy(), data.size());  // the zeros; what was small came the other way
}

/// Holds up the work that is queued on the stream from now on, until `open`.
void hold_up(Stream& stream, const std::atomic<bool>& open) {
  dynamic_cast<EmulatedStream&>(stream).enqueue([gate = &open] {
    while (!*gate) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
}

TEST(SmallUploads, AStreamThatIsHeldUpHoldsNoOtherUp) {
  EmulatedCuda device;
  const auto copies = device.make_stream("upload"), compute = device.make_stream("compute");
  const Buffer to = device.allocate(1 << 20);
  const std::vector<std::byte> bytes(4096);
  std::atomic<bool> open = false;
  hold_up(*copies, open);  // as after gigabytes of matrices
  auto held_up = std::async(std::launch::async, [&] {
    for (int i = 0; i < 32; ++i) device.upload(*copies, to.data(), bytes);
  });
  auto other = std::async(std::launch::async, [&] {
    device.upload(*compute, to.data() + 8192, bytes);
    compute->synchronize();
  });
  EXPECT_EQ(other.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(held_up.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  open = true;
  held_up.get();
  copies->synchronize();  // before its memory is given back
}

TEST(SmallUploads, StreamsTakeOverTheSlotsOfThoseThatAreDone) {
  EmulatedCuda device;
  constexpr std::size_t kStreams = cuda::SmallUploads<SerialLaunch>::kStreams;
  const std::vector<std::byte> bytes(64, std::byte{5});
  const Buffer to = device.allocate(bytes.size());
  std::vector<std::unique_ptr<Stream>> streams;
  const auto upload_on_another = [&] {
    streams.push_back(device.make_stream("one of many"));
    device.upload(*streams.back(), to.data(), bytes);
  };
  for (std::size_t i = 0; i < 2 * kStreams; ++i) {
    upload_on_another();
    streams.back()->synchronize();
  }
  EXPECT_EQ(device.largest_copy(), 0u);
  std::atomic<bool> open = false;
  for (const auto& stream : streams) hold_up(*stream, open);
  for (std::size_t i = 0; i < kStreams; ++i) device.upload(*streams[i], to.data(), bytes);
  upload_on_another();  // all slots are under way: it goes as a large one does
  EXPECT_EQ(device.largest_copy(), bytes.size());
  open = true;
}

TEST(SmallUploads, TakeTheirDataAtOnceAndWaitForASlotWhereAllAreUnderWay) {
  EmulatedCuda device;
  const auto stream = device.make_stream("copies"), other = device.make_stream("others");
  constexpr int kCount = 100;
  const Buffer on_device = device.allocate(kCount * sizeof(int));
  for (int i = 0; i < kCount; ++i) {  // one place in host memory for all of them
    const int value = 7 * i;
    device.upload(i % 2 == 0 ? *stream : *other, on_device.data() + sizeof(int) * i,
                  std::as_bytes(std::span(&value, 1)));
  }
  other->synchronize();
  std::vector<int> back(kCount);
  device.download(*stream, std::as_writable_bytes(std::span(back)), on_device.data());
  stream->synchronize();
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(back[static_cast<std::size_t>(i)], 7 * i);
  EXPECT_EQ(device.largest_copy(), 0u);
}

TEST(SmallUploads, StayInAGraphWhatTheyAre) {
  EmulatedCuda device;
  const auto stream = device.make_stream("copies");
  const Buffer on_device = device.allocate(sizeof(int));
  int value = 1;
  const auto send = [&] {
    device.upload(*stream, on_device.data(), std::as_bytes(std::span(&value, 1)));
  };
  const auto sent = [&] {
    int back = 0;
    device.download(*stream, std::as_writable_bytes(std::span(&back, 1)), on_device.data());
    stream->synchronize();
    return back;
  };
  send();
  EXPECT_EQ(sent(), 1);
  const auto graph = stream->capture(send);  // a copy, which reads its source at each launch
  for (int i = 0; i < 40; ++i) send();       // and no slot, which others would have overwritten
  value = 2;
  stream->launch(*graph);
  EXPECT_EQ(sent(), 2);
}

TEST(EmulatedCuda, RefusesACopyOfTheWrongKind) {
  EmulatedCuda device;
  const auto stream = device.make_stream("copies");
  const Buffer a = device.allocate(64), b = device.allocate(64);
  std::vector<std::byte> host(64);
  EXPECT_NE(error_of([&] {
              device.upload(*stream, a.data(), {b.data(), 64});
            }).find("invalid"),
            std::string::npos);
  EXPECT_NE(error_of([&] { device.upload(*stream, host.data(), host); }).find("invalid"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              device.download(*stream, {a.data(), 64}, b.data());
            }).find("invalid"),
            std::string::npos);
}

TEST(EmulatedCuda, GivesWholeUnitsAndNoMoreThanItHas) {
  EmulatedCuda device({.memory = 10'000, .driver = {.unit = 1000, .fixed = 0}});
  const Buffer a = device.allocate(1);
  EXPECT_EQ(device.free_bytes(), 9000u);
  const Buffer b = device.allocate(8001);
  EXPECT_EQ(device.free_bytes(), 0u);
  EXPECT_THROW(device.allocate(1), DeviceFull);
}

/// Attention of `nodes` nodes with one head, of a text whose length lies on the device, over a
/// cache of `slots` slots.
struct LongAttention {
  LongAttention(Device& d, Stream& stream, DType dtype, std::int64_t head_dim, std::int64_t nodes,
                std::int64_t slots)
      : q(d.allocate(static_cast<std::size_t>(nodes * head_dim) * sizeof(float))),
        out(d.allocate(q.bytes())),
        k(d.allocate(static_cast<std::size_t>(slots) * row_bytes(dtype, head_dim))),
        v(d.allocate(k.bytes())),
        block(d.allocate(static_cast<std::size_t>(slots / kKvBlock) * sizeof(std::int32_t))),
        prefix(d.allocate(sizeof(std::int64_t))) {
    std::vector<std::int32_t> blocks(static_cast<std::size_t>(slots / kKvBlock));
    std::iota(blocks.begin(), blocks.end(), 0);
    d.upload(stream, block.data(), std::as_bytes(std::span(blocks)));
    call.q = {q.data(), DType::kF32, {nodes, 1, head_dim}};
    call.out = {out.data(), DType::kF32, {nodes, 1, head_dim}};
    call.kv = {{k.data(), dtype, {1, kKvBlock, head_dim}},
               {v.data(), dtype, {1, kKvBlock, head_dim}},
               ConstTensorView(block.data(), DType::kI32, {slots / kKvBlock}),
               static_cast<std::int64_t>(row_bytes(dtype, kKvBlock * head_dim))};
    call.prefix = {0, reinterpret_cast<const std::int64_t*>(prefix.data())};
    call.scale = 1;
  }
  Buffer q, out, k, v, block, prefix;
  TreeAttention call;
};

TEST(EmulatedCuda, KernelsThatACaptureIsTheFirstToLaunchAreLoadedWithTheScratch) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32})
    for (const std::int64_t head_dim : {40, 64, 80, 96, 120, 128, 256})
      for (const std::int64_t nodes : {4, 64}) {
        SCOPED_TRACE(testing::Message() << name(dtype) << ", " << nodes << " nodes, " << head_dim);
        EmulatedCuda device;
        device.ops().reserve({.rows = nodes,
                              .columns = 64,
                              .vocab = 64,
                              .heads = 1,
                              .kv_heads = 1,
                              .head_dim = head_dim,
                              .context = 1024});
        const auto stream = device.make_stream("draft");
        const LongAttention a(device, *stream, dtype, head_dim, nodes, 1024);
        const auto work = [&] { device.ops().attend(*stream, a.call); };
        work();  // of a short text: one chunk, or products
        std::unique_ptr<Graph> graph;
        EXPECT_EQ(error_of([&] { graph = stream->capture(work); }), "");
        if (graph != nullptr) stream->launch(*graph);
        stream->synchronize();
      }
}

TEST(EmulatedCuda, LoadsEachKernelByItselfAndNoneInACapture) {
  EmulatedCuda device({.driver = {.unit = 256, .fixed = 8000}});
  const auto stream = device.make_stream("draft");
  const LongAttention a(device, *stream, DType::kF32, 64, 4, 64);
  const auto work = [&] { device.ops().attend(*stream, a.call); };
  const std::size_t free = device.free_bytes();
  const std::string why = error_of([&] { stream->capture(work); });
  EXPECT_NE(why.find("in the middle of a capture"), std::string::npos) << why;
  work();
  EXPECT_EQ(device.free_bytes(), free - 1000);
  work();
  EXPECT_EQ(device.free_bytes(), free - 1000);
  EXPECT_NE(stream->capture(work), nullptr);
  stream->synchronize();
}

struct OfAWarp {
  static constexpr int kThreads = 32;
  template <class Block>
  void operator()(Block&) const {}
};

TEST(EmulatedCuda, RefusesBlocksOfMoreThreadsThanTheirKernelMayHave) {
  EmulatedCuda device;
  const auto stream = device.make_stream("compute");
  cuda::Fault fault;
  const SerialLaunch launch{&device.card(), &fault};
  launch(*stream, OfAWarp(), {1, 32, 0});
  const std::string why = error_of([&] { launch(*stream, OfAWarp(), {1, 64, 0}); });
  EXPECT_NE(why.find("64 threads; its blocks have at most 32"), std::string::npos) << why;
  stream->synchronize();
}

TEST(EmulatedCuda, FailsInEveryCallOnceItHasFailed) {
  EmulatedCuda device;
  const auto stream = device.make_stream("work");
  const auto event = device.make_event();
  Buffer buffer = device.allocate(8);
  std::vector<std::byte> host(8);
  device.card().fail_at(device.card().calls() + 2);
  stream->record(*event);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(error_of([&] { event->wait(); }).find(EmulatedCard::kFailure), 0u);
    EXPECT_THROW(event->reached(), Error);
    EXPECT_THROW(stream->synchronize(), Error);
    EXPECT_THROW(stream->record(*event), Error);
    EXPECT_THROW(stream->wait(*event), Error);
    EXPECT_THROW(device.upload(*stream, buffer.data(), host), Error);
    EXPECT_THROW(device.allocate(1), Error);
  }
  wait_quietly(*event);
  finish_quietly(*stream);
}

}  // namespace
}  // namespace canopy
