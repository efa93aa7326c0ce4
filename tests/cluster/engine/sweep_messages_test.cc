#include "src/engine/ranks/sweep_messages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/device.h"
#include "src/base/counting.h"
#include "tests/error_of.h"
#include "tests/tiny_config.h"

namespace canopy {
namespace {

class SweepMessages : public ::testing::Test {
 protected:
  KvPool pool(int blocks) { return KvPool(*device_, tiny_config(), blocks, {}); }

  std::unique_ptr<Device> device_ = make_device({.threads = 1});
  std::unique_ptr<Stream> stream_ = device_->make_stream("test");
};

TEST_F(SweepMessages, HaveAllPartsAndTheCachesThatTheyShare) {
  KvPool blocks = pool(16);
  KvCache a(blocks, 512), b(blocks, 512);
  a.reserve(200, *stream_);
  a.commit(counting(0, 150), *stream_);
  b.reserve(20, *stream_);
  const std::vector<TokenId> prompt{5, 6, 7}, tree{8, 9};
  const std::vector<std::int32_t> at{150, 151, 152}, depth{153, 154}, rows{0, 1};
  const std::vector<std::uint64_t> bits{1, 3};
  const std::vector<SequenceRows> parts{{{prompt, at, {}, 0, {}}, &a, 0},
                                        {{tree, depth, bits, 0, rows}, &a, 3},
                                        {{tree, rows, {}, 0, {}}, &b, 0}};
  const RankMessage message = read_message(sweep_message(parts));
  EXPECT_EQ(message.command, RankCommand::kSweep);
  ASSERT_EQ(message.caches.size(), 2u);
  EXPECT_EQ(message.caches[0].length, 150);
  EXPECT_TRUE(std::ranges::equal(message.caches[0].blocks, a.state().blocks));
  EXPECT_EQ(message.caches[1].blocks.size(), 1u);
  ASSERT_EQ(message.parts.size(), 3u);
  EXPECT_EQ(message.parts[0].cache, 0);
  EXPECT_EQ(message.parts[1].cache, 0);
  EXPECT_EQ(message.parts[2].cache, 1);
  EXPECT_EQ(message.parts[1].first_scratch_slot, 3);
  EXPECT_EQ(message.parts[0].tokens, prompt);
  EXPECT_EQ(message.parts[1].position, depth);
  EXPECT_EQ(message.parts[1].ancestor_bits, bits);
  EXPECT_EQ(message.parts[1].logit_rows, rows);
  for (const RankCommand command : {RankCommand::kLoad, RankCommand::kCheck, RankCommand::kEnd})
    EXPECT_EQ(read_message(bare_message(command)).command, command);
}

TEST_F(SweepMessages, ThatAreCutOffOrTooLongAreRefused) {
  KvPool blocks = pool(4);
  KvCache a(blocks, 64);
  a.reserve(3, *stream_);
  const std::vector<TokenId> tokens{5, 6};
  const std::vector<std::int32_t> at{0, 1};
  const SequenceRows part{{tokens, at, {}, 0, at}, &a, 0};
  std::vector<std::byte> message = sweep_message({&part, 1});
  for (std::size_t bytes = 0; bytes < message.size(); ++bytes)
    EXPECT_NE(error_of([&] { read_message(std::span(message).first(bytes)); }), "") << bytes;
  message.push_back(std::byte{0});
  EXPECT_NE(error_of([&] { read_message(message); }), "");
}

/// A cache whose pool belongs to another process: it has the other's blocks, and neither takes nor
/// gives back any.
TEST_F(SweepMessages, HaveAMirroredCacheKeepTheSamePath) {
  KvPool theirs = pool(8), ours = pool(8);
  std::vector<std::byte> sent;
  theirs.on_keep([&](const KvState& state, std::span<const NodeId> path) {
    sent = keep_message(state, path);
  });
  KvCache other(theirs, 256);
  {
    KvCache before(theirs, 256);  // so that blocks are not the first ones
    before.reserve(130, *stream_);
    other.reserve(100, *stream_);
  }
  other.commit(counting(0, 70), *stream_);
  EXPECT_TRUE(sent.empty()) << "nothing has moved";
  const std::vector<NodeId> path{0, 2, 3};
  other.commit(path, *stream_);
  const RankMessage message = read_message(sent);
  EXPECT_EQ(message.command, RankCommand::kKeep);
  EXPECT_EQ(message.path, path);
  ASSERT_EQ(message.caches.size(), 1u);
  EXPECT_EQ(message.caches[0].length, 70);
  {
    KvCache mirror(ours, 256);
    // Keys that say which slot they are of.
    const TensorView keys = ours.keys(0);
    const auto slot = [&](std::int64_t of) {
      const auto block = static_cast<std::int64_t>(
          message.caches[0].blocks[static_cast<std::size_t>(of / kKvBlock)]);
      return reinterpret_cast<float*>(keys.data() +
                                      static_cast<std::size_t>(block) * ours.stride()) +
             of % kKvBlock * keys.dim(2);
    };
    for (std::int64_t s = 0; s < 80; ++s) *slot(s) = static_cast<float>(s);
    mirror.mirror(message.caches[0].state(), *stream_);
    mirror.commit(message.path, *stream_);
    stream_->synchronize();
    EXPECT_EQ(mirror.length(), 73);
    EXPECT_EQ(*slot(70), 70.0f);
    EXPECT_EQ(*slot(71), 72.0f);
    EXPECT_EQ(*slot(72), 73.0f);
    EXPECT_EQ(ours.free_blocks(), ours.blocks());
    EXPECT_NE(error_of([&] { mirror.reserve(200, *stream_); }), "");
    const std::vector<std::int32_t> beyond{99};
    EXPECT_NE(error_of([&] { mirror.mirror({1, TextLength::kShort, beyond}, *stream_); }), "");
    mirror.truncate(0);
  }
  EXPECT_EQ(ours.free_blocks(), ours.blocks());
}

}  // namespace
}  // namespace canopy
