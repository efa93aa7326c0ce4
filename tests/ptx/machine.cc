#include "tests/ptx/machine.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tests/ptx/warp.h"

namespace canopy::ptx {

namespace {

/// The threads of a block.
class Block {
 public:
  Block(const Kernel& kernel, const Launch& launch, BlockMemory& memory)
      : kernel_(kernel), memory_(memory) {
    for (int first = 0; first < launch.threads; first += kWarp)
      warps_.emplace_back(kernel, first, launch.threads, launch.blocks);
  }

  /// Returns false where threads wait for what never comes.
  bool run(std::int64_t index, Order order, std::mt19937_64& random) {
    memory_.begin_block(index);
    for (Warp& warp : warps_) warp.begin_block(index);
    std::vector<Warp*> turns;
    for (Warp& warp : warps_) turns.push_back(&warp);
    for (;;) {
      bool any = false;
      if (order.seed != 0) std::ranges::shuffle(turns, random);
      for (Warp* const warp : turns)
        any |= order.seed != 0 ? warp->run_some(memory_, random) : warp->run_in_step(memory_);
      if (std::ranges::all_of(warps_, [](const Warp& w) { return w.ended() == kAllLanes; }))
        return true;
      if (all_at_barrier()) {
        pass_barrier();
      } else if (!any) {
        report_waiting();
        return false;
      }
    }
  }

 private:
  bool all_at_barrier() const {
    return std::ranges::all_of(warps_, [](const Warp& warp) {
      return std::ranges::all_of(warp.groups(),
                                 [](const auto& g) { return g.wait == Warp::Wait::kBarrier; });
    });
  }
  void pass_barrier() {
    std::uint32_t place = 0;
    for (const Warp& warp : warps_)
      for (const Warp::Group& group : warp.groups()) {
        const Insn& barrier = kernel_.code[group.at - 1];
        if (place != 0 && place != group.at)
          memory_.fault(barrier, warp.first_thread(), "threads of a block wait at two barriers");
        place = group.at;
      }
    for (const Warp& warp : warps_)
      if (warp.ended() != 0)
        memory_.fault(kernel_.code[place - 1], warp.first_thread(),
                      "a barrier after some threads have ended");
    memory_.pass_barrier();
    for (Warp& warp : warps_) warp.pass_barrier();
  }
  void report_waiting() {
    for (const Warp& warp : warps_)
      for (const Warp::Group& group : warp.groups())
        if (group.wait == Warp::Wait::kLanes)
          return memory_.fault(kernel_.code[group.at],
                               warp.first_thread() + __builtin_ctz(group.lanes),
                               "waits for lanes that never come");
  }

  const Kernel& kernel_;
  BlockMemory& memory_;
  std::vector<Warp> warps_;
};

bool fits(const Kernel& kernel, const Launch& launch, Faults& faults) {
  std::vector<std::string> wrong;
  const auto text = [](auto number) { return std::to_string(number); };
  if (launch.threads > kernel.most_threads || launch.threads <= 0 || launch.threads % kWarp != 0)
    wrong.push_back(text(launch.threads) + " threads; its bounds are whole warps and at most " +
                    text(kernel.most_threads));
  if (launch.blocks > std::numeric_limits<std::int32_t>::max())
    wrong.push_back(text(launch.blocks) + " blocks; a grid has at most 2147483647");
  if (const std::size_t shared = kernel.shared_bytes + launch.shared_bytes;
      shared > kMostSharedBytes)
    wrong.push_back(text(shared) + " bytes of shared memory; a block has at most " +
                    text(kMostSharedBytes));
  if (launch.arguments.size() != kernel.parameter_bytes)
    wrong.push_back(text(launch.arguments.size()) + " bytes of arguments; the kernel takes " +
                    text(kernel.parameter_bytes));
  for (const std::string& what : wrong) faults.add(kernel.name + " is launched with " + what);
  return wrong.empty();
}

}  // namespace

void run(const Kernel& kernel, const Launch& launch, Order order, GlobalMemory& memory,
         Faults& faults) {
  if (!fits(kernel, launch, faults)) return;
  BlockMemory of_block(kernel, launch.arguments, launch.threads, launch.shared_bytes, memory,
                       faults);
  Block block(kernel, launch, of_block);
  std::mt19937_64 random(order.seed);
  std::vector<std::int64_t> turns(static_cast<std::size_t>(launch.blocks));
  std::iota(turns.begin(), turns.end(), 0);
  if (order.seed != 0) std::ranges::shuffle(turns, random);
  for (const std::int64_t index : turns)
    if (!block.run(index, order, random)) return;
}

}  // namespace canopy::ptx
