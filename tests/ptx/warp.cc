#include "tests/ptx/warp.h"

#include <algorithm>
#include <cstring>

#include "tests/ptx/instructions.h"
#include "tests/ptx/traffic.h"

namespace canopy::ptx {

namespace {

constexpr std::uint32_t kNowhere = ~std::uint32_t{0};

/// Copies a value of 1, 2, 4 or 8 bytes, each by an instruction of its own.
void copy_value(void* to, const void* from, int bytes) {
  switch (bytes) {
    case 1:
      std::memcpy(to, from, 1);
      break;
    case 2:
      std::memcpy(to, from, 2);
      break;
    case 4:
      std::memcpy(to, from, 4);
      break;
    default:
      std::memcpy(to, from, 8);
  }
}
void put(std::byte* registers, Register r, int lane, std::uint64_t value) {
  if (r.width == 0)
    Values<bool>(registers, r).set(lane, value != 0);
  else
    copy_value(registers + r.at + lane * r.width, &value, r.width);
}
std::uint64_t get(const std::byte* registers, Register r, int lane) {
  std::uint64_t value = 0;
  copy_value(&value, registers + r.at + lane * r.width, r.width);
  return value;
}

}  // namespace

Warp::Warp(const Kernel& kernel, int first_thread, int threads, std::int64_t blocks)
    : kernel_(kernel), first_thread_(first_thread) {
  constexpr std::size_t kAlign = 32;
  bytes_.resize(kernel.register_bytes + kAlign);
  registers_ = bytes_.data() + kAlign - reinterpret_cast<std::uintptr_t>(bytes_.data()) % kAlign;
  for (int lane = 0; lane < kWarp; ++lane) {
    for (const auto& [r, value] : kernel.constants) put(registers_, r, lane, value);
    put(registers_, kernel.thread, lane, static_cast<std::uint64_t>(first_thread + lane));
    put(registers_, kernel.threads, lane, static_cast<std::uint64_t>(threads));
    put(registers_, kernel.blocks, lane, static_cast<std::uint64_t>(blocks));
    put(registers_, kernel.lane, lane, static_cast<std::uint64_t>(lane));
  }
}

void Warp::begin_block(std::int64_t index) {
  for (int lane = 0; lane < kWarp; ++lane)
    put(registers_, kernel_.block, lane, static_cast<std::uint64_t>(index));
  groups_.assign(1, {0, kAllLanes});
  ended_ = 0;
}

void Warp::pass_barrier() {
  for (Group& group : groups_) group.wait = Wait::kNone;
}

/// Joins groups at one place, and drops empty ones.
void Warp::merge() {
  std::erase_if(groups_, [](const Group& group) { return group.lanes == 0; });
  for (std::size_t i = 0; i < groups_.size(); ++i)
    for (std::size_t j = groups_.size() - 1; j > i; --j)
      if (groups_[j].at == groups_[i].at && groups_[j].wait == groups_[i].wait) {
        groups_[i].lanes |= groups_[j].lanes;
        groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(j));
      }
}

/// The group that is furthest up in the program of those that can run; their number if none can.
std::size_t Warp::lowest() const {
  std::size_t best = groups_.size();
  for (std::size_t i = 0; i < groups_.size(); ++i)
    if (groups_[i].wait == Wait::kNone &&
        (best == groups_.size() || groups_[i].at < groups_[best].at))
      best = i;
  return best;
}

bool Warp::run_in_step(BlockMemory& memory) {
  bool any = false;
  for (;; any = true) {
    merge();
    const std::size_t index = lowest();
    if (index == groups_.size()) {
      if (!exchange(memory)) return any;
      continue;
    }
    std::uint32_t until = kNowhere;
    for (const Group& group : groups_)
      if (group.wait == Wait::kNone && group.at > groups_[index].at)
        until = std::min(until, group.at);
    run_group(memory, index, until, kNowhere);
  }
}

bool Warp::run_some(BlockMemory& memory, std::mt19937_64& random) {
  merge();
  std::vector<std::size_t> can_run;
  for (std::size_t i = 0; i < groups_.size(); ++i)
    if (groups_[i].wait == Wait::kNone) can_run.push_back(i);
  if (can_run.empty()) return exchange(memory);
  std::size_t index = can_run[random() % can_run.size()];
  if (random() % 8 == 0) {
    const Lanes some = groups_[index].lanes & static_cast<Lanes>(random());
    if (some != 0 && some != groups_[index].lanes) {
      groups_[index].lanes &= ~some;
      groups_.push_back({groups_[index].at, some});
      index = groups_.size() - 1;
    }
  }
  run_group(memory, index, kNowhere, 1 + static_cast<std::uint32_t>(random() % 64));
  return true;
}

Lanes Warp::allowed(const Insn& insn, Lanes lanes) const {
  if (!insn.guarded) return lanes;
  Lanes guard = 0;
  std::memcpy(&guard, registers_ + insn.guard.at, sizeof guard);
  return lanes & (insn.guard_negated ? ~guard : guard);
}

void Warp::run_group(BlockMemory& memory, std::size_t index, std::uint32_t until,
                     std::uint32_t most) {
  const Lanes lanes = groups_[index].lanes;
  std::uint32_t at = groups_[index].at;
  const auto stop = [&](Wait wait) { groups_[index] = {at, lanes, wait}; };
  for (std::uint32_t count = 0; count < most; ++count) {
    if (at == until) return stop(Wait::kNone);
    const Insn& insn = kernel_.code.at(at);
    const Lanes on = allowed(insn, lanes);
    ++kernel_.warp_instructions;
    kernel_.lane_instructions += static_cast<std::uint64_t>(__builtin_popcount(on));
    switch (insn.op) {
      case Op::kCompute:
        if (on != 0) insn.compute(registers_, insn, on);
        break;
      case Op::kLoad:
      case Op::kStore:
      case Op::kAtomicAdd:
        if (on != 0) move(memory, insn, on);
        break;
      case Op::kActiveMask:
        for_each_lane(on, [&](int lane) { put(registers_, insn.to, lane, lanes); });
        break;
      case Op::kBranch:
        if (on == lanes) {
          const bool back = insn.target <= at;
          at = insn.target;
          if (back || at > until) return stop(Wait::kNone);
          continue;
        }
        if (on == 0) break;
        groups_[index] = {insn.target, on};
        groups_.push_back({at + 1, lanes & ~on});
        return;
      case Op::kExit:
        ended_ |= on;
        groups_[index] = {at + 1, lanes & ~on};
        return;
      case Op::kBarrier:
        ++at;
        if (on != lanes) memory.fault(insn, first_thread_, "a barrier that some lanes pass by");
        return stop(Wait::kBarrier);
      case Op::kShuffle:
      case Op::kReduceAdd:
      case Op::kMatchAny:
        if (on != lanes) memory.fault(insn, first_thread_, "an exchange that some lanes pass by");
        return stop(Wait::kLanes);
    }
    ++at;
  }
  stop(Wait::kNone);
}

void Warp::move(BlockMemory& memory, const Insn& insn, Lanes lanes) {
  std::uint64_t addresses[kWarp] = {};
  const auto use = insn.op == Op::kLoad    ? BlockMemory::Use::kRead
                   : insn.op == Op::kStore ? BlockMemory::Use::kWrite
                                           : BlockMemory::Use::kAtomic;
  const Register base = insn.from[0];
  for_each_lane(lanes, [&](int lane) {
    addresses[lane] = get(registers_, base, lane) + static_cast<std::uint64_t>(insn.offset);
    if (base.width == 4) addresses[lane] &= 0xffffffff;
    std::byte* const at = memory.touch(insn, first_thread_ + lane, addresses[lane], use);
    if (at == nullptr) return;
    if (insn.op == Op::kAtomicAdd) {
      std::uint64_t before = 0;
      copy_value(&before, at, insn.bytes);
      const std::uint64_t after = before + get(registers_, insn.data[0], lane);
      copy_value(at, &after, insn.bytes);
      put(registers_, insn.to, lane, before);
      return;
    }
    for (int i = 0; i < insn.count; ++i) {
      std::byte* const one = at + i * insn.bytes;
      const Register r = insn.data[static_cast<std::size_t>(i)];
      if (insn.op == Op::kStore) {
        copy_value(one, registers_ + r.at + lane * r.width, insn.bytes);
      } else {
        std::uint64_t value = 0;
        copy_value(&value, one, insn.bytes);
        const int unused = 64 - 8 * insn.bytes;
        if (insn.is_signed)
          value = static_cast<std::uint64_t>(static_cast<std::int64_t>(value << unused) >> unused);
        put(registers_, r, lane, value);
      }
    }
  });
  Traffic& traffic = kernel_.traffic[static_cast<std::size_t>(&insn - kernel_.code.data())];
  count_traffic(insn, addresses, lanes, traffic);
}

bool Warp::exchange(BlockMemory& memory) {
  for (const Group& group : groups_) {
    if (group.wait != Wait::kLanes) continue;
    for (Lanes left = group.lanes; left != 0; left &= left - 1)
      if (complete(memory, group, __builtin_ctz(left))) return true;
  }
  return false;
}

/// Runs the exchange that a lane waits in, if all lanes of its mask have come with the same mask.
bool Warp::complete(BlockMemory& memory, const Group& group, int lane) {
  const Insn& insn = kernel_.code[group.at];
  const auto mask_of = [&](int of) {
    return static_cast<Lanes>(get(registers_, insn.from[1], of));
  };
  const int thread = first_thread_ + lane;
  Lanes mask = mask_of(lane);
  if ((mask >> lane & 1) == 0) {
    memory.fault(insn, thread, "an exchange whose mask leaves this lane out");
    mask |= Lanes{1} << lane;
  }
  if ((mask & ended_) != 0) {
    memory.fault(insn, thread, "an exchange whose mask names a lane that has ended");
    mask &= ~ended_;
  }
  if ((mask & ~group.lanes) != 0) return false;
  bool same = true;
  for_each_lane(mask & ~(Lanes{1} << lane),
                [&](int of) { same &= (mask_of(of) & ~ended_) == mask; });
  if (!same) return false;
  compute_exchange(memory, insn, mask);
  const std::uint32_t at = group.at;
  const auto index = static_cast<std::size_t>(&group - groups_.data());
  groups_[index].lanes &= ~mask;
  groups_.push_back({at + 1, mask});
  return true;
}

void Warp::compute_exchange(BlockMemory& memory, const Insn& insn, Lanes lanes) {
  std::uint64_t in[kWarp] = {}, sum = 0;
  for_each_lane(lanes, [&](int lane) { sum += in[lane] = get(registers_, insn.from[0], lane); });
  for_each_lane(lanes, [&](int lane) {
    if (insn.op == Op::kReduceAdd) {
      put(registers_, insn.to, lane, sum);
    } else if (insn.op == Op::kMatchAny) {
      Lanes same = 0;
      for_each_lane(lanes, [&](int of) { same |= Lanes{in[of] == in[lane]} << of; });
      put(registers_, insn.to, lane, same);
    } else {  // a butterfly, within segments that the last operand cuts
      const auto apart = static_cast<int>(get(registers_, insn.from[2], lane) & 31);
      const std::uint64_t bounds = get(registers_, insn.from[3], lane);
      const auto segment = static_cast<int>(bounds >> 8 & 31),
                 clamp = static_cast<int>(bounds & 31);
      const int last = (lane & segment) | (clamp & ~segment);
      const bool inside = (lane ^ apart) <= last;
      const int of = inside ? lane ^ apart : lane;
      if ((lanes >> of & 1) == 0)
        memory.fault(insn, first_thread_ + lane, "a value of a lane that its mask leaves out");
      put(registers_, insn.to, lane, in[of]);
      if (insn.has_predicate) put(registers_, insn.to_predicate, lane, inside ? 1 : 0);
    }
  });
}

}  // namespace canopy::ptx
