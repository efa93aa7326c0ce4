#pragma once
// A warp of 32 threads, each of which has its own place in the program.
#include <random>
#include <vector>

#include "tests/ptx/memory.h"
#include "tests/ptx/program.h"

namespace canopy::ptx {

class Warp {
 public:
  enum class Wait : std::uint8_t { kNone, kBarrier, kLanes };
  /// Lanes at the same place.
  struct Group {
    std::uint32_t at;
    Lanes lanes;
    Wait wait = Wait::kNone;
  };

  /// first_thread: number of lane 0 in its block.
  Warp(const Kernel& kernel, int first_thread, int threads, std::int64_t blocks);
  void begin_block(std::int64_t index);

  /// Runs until all lanes wait or have ended. Returns whether anything ran.
  bool run_in_step(BlockMemory& memory);
  /// Runs some lanes for a while.
  bool run_some(BlockMemory& memory, std::mt19937_64& random);
  const std::vector<Group>& groups() const { return groups_; }
  Lanes ended() const { return ended_; }
  void pass_barrier();
  int first_thread() const { return first_thread_; }

 private:
  std::size_t lowest() const;
  void merge();
  /// Runs a group until it waits, parts, ends or reaches a place in `until`, but for `most`
  /// instructions at most.
  void run_group(BlockMemory& memory, std::size_t index, std::uint32_t until, std::uint32_t most);
  Lanes allowed(const Insn& insn, Lanes lanes) const;
  void move(BlockMemory& memory, const Insn& insn, Lanes lanes);
  void note_traffic(const Insn& insn, const std::uint64_t* addresses, Lanes lanes) const;
  /// Runs an exchange all of whose lanes have come; false if there is none.
  bool exchange(BlockMemory& memory);
  bool complete(BlockMemory& memory, const Group& group, int lane);
  void compute_exchange(BlockMemory& memory, const Insn& insn, Lanes lanes);

  const Kernel& kernel_;
  const int first_thread_;
  std::vector<std::byte> bytes_;  // of registers
  std::byte* registers_;
  std::vector<Group> groups_;
  Lanes ended_ = 0;
};

}  // namespace canopy::ptx
