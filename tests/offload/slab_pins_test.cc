#include "offload/io/slab_pins.h"

#include "src/machine/host_slab.h"
#include "tests/kernels/emulated_cuda.h"

namespace canopy {
namespace {

constexpr std::size_t kPage = 4096;

TEST(SlabPins, LocksPieceByPieceAsFarAsItIsAsked) {
  EmulatedCuda device;
  const HostSlab slab(10 * kPage);
  Notes notes;
  SlabPins pins(device, slab.bytes(), 4 * kPage);
  EXPECT_FALSE(pins.lock_next(0, notes));
  EXPECT_TRUE(pins.lock_next(1, notes));
  EXPECT_FALSE(pins.lock_next(4 * kPage, notes));
  EXPECT_EQ(device.pins(), 1u);
  pins.lock_all(notes);
  EXPECT_EQ(device.pins(), 3u);  // the last of two pages
  EXPECT_FALSE(pins.lock_next(slab.size(), notes));
  EXPECT_EQ(notes, Notes{});
}

TEST(SlabPins, OneRefusalEndsItWithANoteAndWhatIsLockedStays) {
  EmulatedCuda device({.most_pinned = 5 * kPage});
  const HostSlab slab(10 * kPage);
  Notes notes;
  {
    SlabPins pins(device, slab.bytes(), 2 * kPage);
    pins.lock_all(notes);
    EXPECT_EQ(device.pins(), 2u);
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_NE(notes.front().find("which is slower"), std::string::npos) << notes.front();
    const auto stream = device.make_stream("copy");
    const Buffer to = device.allocate(slab.size());
    slab.data()[9 * kPage] = std::byte{7};
    device.upload(*stream, to.data(), slab.bytes());  // half of it locked
    std::vector<std::byte> back(slab.size());
    device.download(*stream, back, to.data());
    stream->synchronize();
    EXPECT_EQ(back[9 * kPage], std::byte{7});
  }
  SlabPins again(device, slab.bytes().first(5 * kPage));
  again.lock_all(notes);  // the others were given back
  EXPECT_EQ(device.pins(), 3u);
}

}  // namespace
}  // namespace canopy
