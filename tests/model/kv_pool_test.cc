#include "src/model/kv_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "kernels/device.h"
#include "src/base/counting.h"
#include "src/model/kv_cache.h"

namespace canopy {
namespace {

class KvPoolTest : public ::testing::Test {
 protected:
  static ModelConfig config() {
    ModelConfig c;
    c.layers = 2;
    c.kv_heads = 2;
    c.head_dim = 8;
    return c;
  }
  KvPool pool(int blocks) { return KvPool(*device_, config(), blocks, {}); }
  /// Leaves the cache as a model does that ran these tokens.
  void run(KvCache& kv, std::span<const TokenId> text) {
    kv.reuse_prefix(text.first(text.size() - 1), *stream_);
    const auto more = text.size() - static_cast<std::size_t>(kv.length());
    kv.reserve(static_cast<int>(text.size()), *stream_);
    kv.commit(counting(0, more), *stream_);
    kv.share(text);
    stream_->synchronize();
  }
  std::vector<std::int32_t> table(const KvCache& kv) {
    const ConstTensorView block = kv.layer(0).block;
    const auto* data = reinterpret_cast<const std::int32_t*>(block.data());
    return {data, data + kv.blocks()};
  }
  static std::vector<TokenId> text(unsigned seed, std::size_t tokens) {
    std::mt19937 random(seed);
    std::vector<TokenId> ids(tokens);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % 50);
    return ids;
  }

  std::unique_ptr<Device> device_ = make_device({});
  std::unique_ptr<Stream> stream_ = device_->make_stream("test");
};

TEST_F(KvPoolTest, TextsWithACommonBeginningHoldItOnce) {
  KvPool blocks = pool(32);
  KvCache a(blocks, 1024), b(blocks, 1024);
  std::vector<TokenId> one = text(1, 600), other = one;
  std::fill(other.begin() + 500, other.end(), 3);
  run(a, one);
  EXPECT_EQ(blocks.free_blocks(), 32 - 10);
  run(b, other);
  EXPECT_EQ(blocks.free_blocks(), 32 - 10 - 3);  // 500 tokens have 7 whole blocks
  const auto of_a = table(a), of_b = table(b);
  for (std::size_t i = 0; i < of_a.size(); ++i) EXPECT_EQ(of_a[i] == of_b[i], i < 7) << i;
  a.truncate(0);
  EXPECT_EQ(blocks.free_blocks(), 32 - 10);  // b holds what it shared
  b.truncate(0);
  EXPECT_EQ(blocks.free_blocks(), 32);

  KvCache later(blocks, 1024);  // they are remembered for those who come later
  later.reuse_prefix(one, *stream_);
  EXPECT_EQ(later.length(), 576);
}

TEST_F(KvPoolTest, TellsWhereATextPartsFromWhatIsRemembered) {
  KvPool blocks = pool(8);
  KvCache cache(blocks, 256);
  std::vector<TokenId> one = text(2, 150);
  EXPECT_EQ(blocks.known_prefix(one), 0);
  run(cache, one);
  EXPECT_EQ(blocks.known_prefix(one), 2 * kKvBlock);  // of the third block it knows nothing
  EXPECT_EQ(blocks.known_prefix(std::span(one).first(100)), 100);
  one[kKvBlock + 5] = 99;
  EXPECT_EQ(blocks.known_prefix(one), kKvBlock + 5);
  one[0] = 99;
  EXPECT_EQ(blocks.known_prefix(one), 0);
}

TEST_F(KvPoolTest, ForgetsWhatWasUsedLeastRecentlyAndNothingThatIsHeld) {
  KvPool blocks = pool(8);
  KvCache kv(blocks, 512);
  for (unsigned seed = 1; seed <= 3; ++seed) {  // two blocks each
    run(kv, text(seed, 128));
    kv.truncate(0);
  }
  kv.reuse_prefix(text(1, 129), *stream_);  // used again
  EXPECT_EQ(kv.length(), 128);
  KvCache large(blocks, 512);
  large.reserve(4 * kKvBlock, *stream_);  // two that are free, two of text 2
  kv.truncate(0);
  KvCache look(blocks, 512);
  look.reuse_prefix(text(2, 129), *stream_);
  EXPECT_EQ(look.length(), 0);
  look.reuse_prefix(text(3, 129), *stream_);
  EXPECT_EQ(look.length(), 128);
  EXPECT_THROW(look.reserve(512, *stream_), KvPoolFull);
}

TEST_F(KvPoolTest, ATextThatIsWrittenAgainIsHeldOnceAndItsPoolIsNeverUsedUp) {
  KvPool blocks = pool(4);
  for (int round = 0; round < 5; ++round) {
    KvCache kv(blocks, 4 * kKvBlock);
    const std::vector<TokenId> same = text(7, 4 * kKvBlock);
    for (std::size_t tokens = 20; tokens <= same.size(); tokens += 20) {
      const auto now = std::span(same).first(tokens);
      kv.reserve(static_cast<int>(tokens), *stream_);
      kv.commit(counting(0, tokens - static_cast<std::size_t>(kv.length())), *stream_);
      kv.share(now);
    }
  }
  EXPECT_EQ(blocks.free_blocks(), 4);
}

TEST_F(KvPoolTest, RandomTextsNeverShareABlockThatTheyShouldNot) {
  std::mt19937 random(5);
  KvPool blocks = pool(24);
  std::vector<std::unique_ptr<KvCache>> caches;
  std::vector<std::vector<TokenId>> texts(4);
  for (std::size_t i = 0; i < texts.size(); ++i)
    caches.push_back(std::make_unique<KvCache>(blocks, 400));
  for (int step = 0; step < 3000; ++step) {
    const std::size_t i = random() % texts.size();
    if (random() % 3 == 0) {
      caches[i]->truncate(0);
      texts[i].clear();
      continue;
    }
    if (caches[i]->length() > 0) continue;
    texts[i] = text(static_cast<unsigned>(random() % 3), 64 * (1 + random() % 3) + random() % 60);
    if (random() % 2 == 0) texts[i][random() % texts[i].size()] = 51;
    run(*caches[i], texts[i]);
    std::vector<std::pair<std::vector<TokenId>, std::int32_t>> seen;
    for (std::size_t a = 0; a < texts.size(); ++a) {
      const auto blocks_of = table(*caches[a]);
      for (std::size_t k = 0; k < blocks_of.size(); ++k) {
        const auto end = std::min(texts[a].size(), (k + 1) * kKvBlock);
        seen.push_back({{texts[a].begin(), texts[a].begin() + static_cast<std::ptrdiff_t>(end)},
                        blocks_of[k]});
      }
    }
    for (const auto& [beginning, block] : seen)
      for (const auto& [other, its_block] : seen)
        ASSERT_TRUE(block != its_block || beginning == other) << "step " << step;
  }
}

/// Heads of 16 numbers in f32: a block fills whole pages.
class KvPoolOfPages : public KvPoolTest {
 protected:
  static ModelConfig paged() {
    ModelConfig c = config();
    c.head_dim = 16;
    return c;
  }
  static constexpr std::size_t kBlock = std::size_t{2} * 2 * 2 * 64 * 16 * 4;  // bytes
  KvPool paged_pool(int blocks) { return KvPool(*device_, paged(), blocks, {}); }
};

TEST_F(KvPoolOfPages, TakesMemoryByTheBlockAndGivesItBack) {
  if (device_->page_bytes() != 4096) GTEST_SKIP() << "pages are of another size";
  KvPool blocks = paged_pool(32);
  ASSERT_TRUE(blocks.gives_back());
  EXPECT_EQ(blocks.block_bytes(), kBlock);
  EXPECT_EQ(blocks.held_blocks(), 0);
  int asked = 0;
  blocks.on_growth([&] { ++asked; });
  KvCache a(blocks, 1024), b(blocks, 1024);
  run(a, text(1, 300));
  EXPECT_EQ(blocks.held_blocks(), 5);
  EXPECT_EQ(asked, 5);
  a.truncate(0);  // four whole blocks are remembered
  EXPECT_EQ(blocks.held_blocks(), 5);
  EXPECT_EQ(blocks.least_held_blocks(), 4);
  EXPECT_EQ(blocks.release_free(), 1);
  EXPECT_EQ(blocks.held_blocks(), 4);
  EXPECT_EQ(blocks.free_blocks(), 32);
  run(b, text(2, 64));  // what is remembered has its memory as long as there is other
  EXPECT_EQ(blocks.held_blocks(), 5);
  EXPECT_EQ(blocks.known_prefix(text(1, 300)), 256);
}

TEST_F(KvPoolOfPages, BlocksThatWereReleasedReadAsZeroAndAreNobodyElses) {
  if (device_->page_bytes() != 4096) GTEST_SKIP() << "pages are of another size";
  KvPool blocks = paged_pool(8);
  const std::vector<std::byte> ones(blocks.block_bytes(), std::byte{1});
  std::vector<int> taken;
  for (int i = 0; i < 8; ++i) taken.push_back(blocks.take());
  for (const int block : taken) blocks.write(block, ones, *stream_);
  for (const int block : {1, 2, 3, 6}) blocks.give_back(block);
  EXPECT_EQ(blocks.release_free(), 4);
  std::vector<std::byte> content(blocks.block_bytes());
  for (const int block : taken) {
    blocks.read(block, content, *stream_);
    const bool gone = block == 1 || block == 2 || block == 3 || block == 6;
    EXPECT_EQ(content, std::vector<std::byte>(content.size(), gone ? std::byte{0} : std::byte{1}))
        << block;
  }
}

TEST_F(KvPoolOfPages, ForgetsWhatNobodyHasUsedSince) {
  KvPool blocks = paged_pool(32);
  KvCache a(blocks, 1024), b(blocks, 1024), c(blocks, 1024);
  run(a, text(1, 300));
  run(b, text(2, 200));
  a.truncate(0);
  const std::uint64_t mark = blocks.uses();
  run(c, text(3, 200));
  c.truncate(0);
  blocks.forget_before(mark);
  EXPECT_EQ(blocks.known_prefix(text(1, 300)), 0);
  EXPECT_EQ(blocks.known_prefix(text(2, 200)), 192) << "a cache holds it";
  EXPECT_EQ(blocks.known_prefix(text(3, 200)), 192) << "it is younger";
}

TEST_F(KvPoolTest, BlocksThatShareAPageKeepTheirMemory) {
  ModelConfig narrow = config();
  narrow.head_dim = 2;  // 2 KiB in f16
  KvPool blocks(*device_, narrow, 8, {DType::kF16, DType::kF16});
  EXPECT_FALSE(blocks.gives_back());
  EXPECT_EQ(blocks.held_blocks(), 8);
  blocks.on_growth([] { FAIL() << "it has all its memory from the start"; });
  KvCache a(blocks, 512);
  run(a, text(1, 200));
  a.truncate(0);
  EXPECT_EQ(blocks.release_free(), 0);
  EXPECT_EQ(blocks.held_blocks(), 8);
}

TEST_F(KvPoolTest, BlocksInAnArenaLieCellByCellAndLeaveItsEndToOthers) {
  const std::size_t own = KvPool::block_bytes(config(), {}), other = 4096;
  KvArena arena(*device_, 6, own + other);
  std::byte* const others = arena.place(other);
  KvPool blocks(*device_, config(), 6, {}, 0, &arena);
  EXPECT_TRUE(blocks.gives_back());
  EXPECT_EQ(blocks.keys(0).data(), others + other);
  EXPECT_EQ(blocks.stride(), own + other);
  EXPECT_EQ(arena.end(), others + 6 * (own + other));
  EXPECT_THROW(arena.place(1), Error) << "the cells are full";
  int asked = 0;
  blocks.on_growth([&] { ++asked; });
  for (int block = 0; block < 4; ++block) EXPECT_EQ(blocks.take(), block);
  EXPECT_EQ(asked, 4);
  blocks.give_back(2);
  blocks.give_back(0);
  EXPECT_EQ(blocks.least_held_blocks(), 4) << "block 3 is in use";
  EXPECT_EQ(blocks.release_free(), 0);
  EXPECT_EQ(blocks.take(), 0) << "the lowest";
  EXPECT_EQ(asked, 4) << "it has its memory";
  blocks.give_back(3);
  EXPECT_EQ(blocks.least_held_blocks(), 2);
  EXPECT_EQ(blocks.held_blocks(), 4);
  EXPECT_EQ(blocks.release_free(), 2);
  EXPECT_EQ(blocks.held_blocks(), 2);
  for (const int block : {2, 3, 4, 5}) EXPECT_EQ(blocks.take(), block);
  EXPECT_THROW(blocks.take(), KvPoolFull);
  // Blocks have bytes of their own.
  std::vector<std::byte> content(own);
  for (int block = 0; block < 6; ++block)
    blocks.write(block, std::vector<std::byte>(own, static_cast<std::byte>(block + 1)), *stream_);
  for (int block = 0; block < 6; ++block) {
    EXPECT_EQ(std::count(others + block * (own + other), others + block * (own + other) + other,
                         std::byte{0}),
              static_cast<std::ptrdiff_t>(other));
    blocks.read(block, content, *stream_);
    EXPECT_EQ(content, std::vector<std::byte>(own, static_cast<std::byte>(block + 1)));
  }
}

}  // namespace
}  // namespace canopy
