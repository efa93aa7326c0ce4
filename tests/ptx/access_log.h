#pragma once
// A record of the threads that touched each byte of a memory, to find accesses that nothing orders.
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace canopy::ptx {

/// Accesses of threads that run one after another here, and at once on a card. Time passes in
/// phases: from barrier to barrier of one block. Threads of a phase are not ordered, nor are
/// phases of different blocks.
class AccessLog {
 public:
  enum class Use : std::uint8_t { kRead, kWrite, kAtomic };
  /// Orders all that came before: a launch.
  void begin_all();
  /// Orders all that came before: no other block has this shared memory.
  void begin_block() { block_begin_ = ++phase_; }
  void begin_phase() { ++phase_; }

  /// Notes an access of a thread of the block. Returns what it races with, in words.
  std::optional<std::string> note(std::uint64_t address, std::size_t bytes, int thread, Use use);

 private:
  using Phase = std::uint32_t;
  static constexpr std::uint16_t kSeveral = 0xffff, kAtomically = 0xfffe;  // in place of a thread
  /// The last accesses. Readers of other blocks are remembered when one of this block reads.
  struct Cell {
    Phase written = 0, read = 0, read_elsewhere = 0;
    std::uint16_t writer = 0, reader = 0;
  };
  /// Has a cell for each 4, 2 or 1 bytes, as the narrowest access to it was.
  struct Page {
    unsigned shift = 2;
    std::vector<Cell> cells;
    void refine(unsigned to);
  };
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::size_t kMostPages = 2048;

  Page& page(std::uint64_t index);
  const char* conflict(const Cell& cell, std::uint16_t thread, Use use) const;
  void remember(Cell& cell, std::uint16_t thread, Use use) const;
  bool elsewhere(Phase phase) const { return phase >= all_begin_ && phase < block_begin_; }

  Phase phase_ = 0, all_begin_ = 0, block_begin_ = 0;
  std::unordered_map<std::uint64_t, Page> pages_;
  std::uint64_t last_index_ = ~std::uint64_t{0};
  Page* last_ = nullptr;
};

}  // namespace canopy::ptx
