#include <cmath>
#include <limits>

#include "src/base/formats/half.h"
#include "tests/ptx/instructions.h"

namespace canopy::ptx {

namespace {

template <class T>
void read_as(std::byte* registers, Register r, Lanes lanes, T* values) {
  const auto read = [&]<class Stored>(Stored) {
    const Values<Stored> stored(registers, r);
    for_each_lane(lanes, [&](int lane) {
      const Stored value = stored[lane];
      std::memcpy(&values[lane], &value, sizeof(T));
    });
  };
  if constexpr (sizeof(T) <= 2)
    if (r.width == 2) return read(std::uint16_t());
  if constexpr (sizeof(T) <= 4)
    if (r.width == 4) return read(std::uint32_t());
  read(std::uint64_t());
}

/// Integers fill wider registers with their sign, or with zeros.
template <class T>
void write_as(std::byte* registers, Register r, Lanes lanes, const T* values) {
  const auto write = [&]<class Stored>(Stored) {
    Values<Stored> stored(registers, r);
    for_each_lane(lanes, [&](int lane) {
      Stored value = 0;
      if constexpr (std::is_integral_v<T>)
        value = static_cast<Stored>(values[lane]);
      else
        std::memcpy(&value, &values[lane], sizeof(T));
      stored.set(lane, value);
    });
  };
  if constexpr (sizeof(T) <= 2)
    if (r.width == 2) return write(std::uint16_t());
  if constexpr (sizeof(T) <= 4)
    if (r.width == 4) return write(std::uint32_t());
  write(std::uint64_t());
}

template <class To, class From, class Of>
void define_conversion(Definitions& all, const std::string& name, Of) {
  all[name] = {[](std::byte* registers, const Insn& insn, Lanes lanes) {
                 From from[kWarp] = {};
                 To to[kWarp] = {};
                 read_as(registers, insn.from[0], lanes, from);
                 for (int lane = 0; lane < kWarp; ++lane)
                   to[lane] = static_cast<To>(Of()(from[lane]));
                 write_as(registers, insn.to, lanes, to);
               },
               sizeof(To),
               {sizeof(From)},
               true};
}

/// The integer of type T that is nearest to a rounded value; zero for what is no number.
template <class T, class F>
T saturated(F rounded) {
  if (std::isnan(rounded)) return 0;
  if (rounded <= static_cast<F>(std::numeric_limits<T>::min()))
    return std::numeric_limits<T>::min();
  if (rounded >= static_cast<F>(std::numeric_limits<T>::max()))
    return std::numeric_limits<T>::max();
  return static_cast<T>(rounded);
}

template <class F, class T>
void define_roundings(Definitions& all, const std::string& type, const std::string& from) {
  const auto define_rounding = [&](const char* way, auto of) {
    define_conversion<T, F>(all, std::string("cvt.") + way + "." + type + "." + from, of);
  };
  define_rounding("rni", [](F x) { return saturated<T>(std::nearbyint(x)); });
  define_rounding("rzi", [](F x) { return saturated<T>(std::trunc(x)); });
  define_rounding("rmi", [](F x) { return saturated<T>(std::floor(x)); });
  define_rounding("rpi", [](F x) { return saturated<T>(std::ceil(x)); });
}

template <class From>
void define_from_integer(Definitions& all, const std::string& from) {
  const auto same = [](From x) { return x; };
  define_conversion<std::int8_t, From>(all, "cvt.s8." + from, same);
  define_conversion<std::uint8_t, From>(all, "cvt.u8." + from, same);
  define_conversion<std::int16_t, From>(all, "cvt.s16." + from, same);
  define_conversion<std::uint16_t, From>(all, "cvt.u16." + from, same);
  define_conversion<std::int32_t, From>(all, "cvt.s32." + from, same);
  define_conversion<std::uint32_t, From>(all, "cvt.u32." + from, same);
  define_conversion<std::int64_t, From>(all, "cvt.s64." + from, same);
  define_conversion<std::uint64_t, From>(all, "cvt.u64." + from, same);
  define_conversion<float, From>(all, "cvt.rn.f32." + from, same);
  define_conversion<double, From>(all, "cvt.rn.f64." + from, same);
  define_roundings<float, From>(all, from, "f32");
  define_roundings<double, From>(all, from, "f64");
}

template <class F>
void define_whole_numbers(Definitions& all, const std::string& type) {
  const std::string both = type + "." + type;
  define_conversion<F, F>(all, "cvt.rni." + both, [](F x) { return std::nearbyint(x); });
  define_conversion<F, F>(all, "cvt.rzi." + both, [](F x) { return std::trunc(x); });
  define_conversion<F, F>(all, "cvt.rmi." + both, [](F x) { return std::floor(x); });
  define_conversion<F, F>(all, "cvt.rpi." + both, [](F x) { return std::ceil(x); });
}

constexpr std::uint16_t kNoNumber = 0x7fff;  // as cards write it, in 16 bits

}  // namespace

void define_conversions(Definitions& all) {
  define_from_integer<std::int8_t>(all, "s8");
  define_from_integer<std::uint8_t>(all, "u8");
  define_from_integer<std::int16_t>(all, "s16");
  define_from_integer<std::uint16_t>(all, "u16");
  define_from_integer<std::int32_t>(all, "s32");
  define_from_integer<std::uint32_t>(all, "u32");
  define_from_integer<std::int64_t>(all, "s64");
  define_from_integer<std::uint64_t>(all, "u64");
  define_whole_numbers<float>(all, "f32");
  define_whole_numbers<double>(all, "f64");
  define_conversion<double, float>(all, "cvt.f64.f32", [](float x) { return x; });
  define_conversion<float, double>(all, "cvt.rn.f32.f64", [](double x) { return x; });
  define_conversion<float, float>(all, "cvt.sat.f32.f32", [](float x) {
    return x >= 1 ? 1.0f : x > 0 ? x : 0.0f;
  });
  define_conversion<float, std::uint16_t>(all, "cvt.f32.f16",
                                          [](std::uint16_t x) { return f32_from_f16(x); });
  define_conversion<std::uint16_t, float>(
      all, "cvt.rn.f16.f32", [](float x) { return std::isnan(x) ? kNoNumber : f16_from_f32(x); });
  define_conversion<std::uint16_t, float>(
      all, "cvt.rn.bf16.f32", [](float x) { return std::isnan(x) ? kNoNumber : bf16_from_f32(x); });
}

const Definition* find_definition(const std::string& name) {
  static const Definitions kAll = [] {
    Definitions all;
    define_integers(all);
    define_floats(all);
    define_conversions(all);
    return all;
  }();
  const auto found = kAll.find(name);
  return found == kAll.end() ? nullptr : &found->second;
}

}  // namespace canopy::ptx
