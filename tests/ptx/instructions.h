#pragma once
// Arithmetic of PTX, by the names of its instructions.
#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/ptx/program.h"

namespace canopy::ptx {

struct Definition {
  Compute compute;
  std::uint8_t to;                 // width of what it writes, as Register has it
  std::vector<std::uint8_t> from;  // and of what it reads
  bool any_width = false;          // registers may be wider: conversions
};
using Definitions = std::unordered_map<std::string, Definition>;

/// Null if there is no such instruction here.
const Definition* find_definition(const std::string& name);

void define_integers(Definitions& definitions);
void define_floats(Definitions& definitions);
void define_conversions(Definitions& definitions);

template <class Body>
void for_each_lane(Lanes lanes, const Body& body) {
  if (lanes == kAllLanes) {
    for (int lane = 0; lane < kWarp; ++lane) body(lane);
  } else {
    for (; lanes != 0; lanes &= lanes - 1) body(__builtin_ctz(lanes));
  }
}

/// The values of one register.
template <class T>
class Values {
 public:
  Values(std::byte* registers, Register r) : at_(reinterpret_cast<T*>(registers + r.at)) {}
  T operator[](int lane) const { return at_[lane]; }
  void set(int lane, T value) { at_[lane] = value; }

 private:
  T* at_;
};
template <>
class Values<bool> {
 public:
  Values(std::byte* registers, Register r) : at_(reinterpret_cast<Lanes*>(registers + r.at)) {}
  bool operator[](int lane) const { return (*at_ >> lane & 1) != 0; }
  void set(int lane, bool value) { *at_ = (*at_ & ~(Lanes{1} << lane)) | Lanes{value} << lane; }

 private:
  Lanes* at_;
};

template <class T>
constexpr std::uint8_t width_of() {
  return std::is_same_v<T, bool> ? 0 : sizeof(T);
}

/// Moves between a register and its parts: insn.count of insn.bytes each, in insn.data.
void take_apart(std::byte* registers, const Insn& insn, Lanes lanes);
void put_together(std::byte* registers, const Insn& insn, Lanes lanes);

template <class Signature>
struct Definer;
template <class To, class... From>
struct Definer<To(From...)> {
  template <class Of>
  static Compute compute() {
    return [](std::byte* registers, const Insn& insn, Lanes lanes) {
      run<Of>(registers, insn, lanes, std::index_sequence_for<From...>());
    };
  }
  template <class Of, std::size_t... kIndex>
  static void run(std::byte* registers, const Insn& insn, Lanes lanes,
                  std::index_sequence<kIndex...>) {
    Values<To> to(registers, insn.to);
    const std::tuple<Values<From>...> from(Values<From>(registers, insn.from[kIndex])...);
    for_each_lane(lanes, [&](int lane) {
      to.set(lane, static_cast<To>(Of()(std::get<kIndex>(from)[lane]...)));
    });
  }
};

/// Defines an instruction by what a lane computes: define<To(From...)>(all, "add.u32", of).
template <class Signature, class Of>
void define(Definitions& all, const std::string& name, Of) {
  []<class To, class... From>(Definitions& into, const std::string& as, To (*)(From...)) {
    into[as] = {Definer<Signature>::template compute<Of>(), width_of<To>(), {width_of<From>()...}};
  }(all, name, static_cast<Signature*>(nullptr));
}

}  // namespace canopy::ptx
