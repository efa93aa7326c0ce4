#include <bit>

#include "tests/ptx/instructions.h"

namespace canopy::ptx {

namespace {

using S16 = std::int16_t;
using U16 = std::uint16_t;
using S32 = std::int32_t;
using U32 = std::uint32_t;
using S64 = std::int64_t;
using U64 = std::uint64_t;

/// Comparisons of integers of type T, whose name is also of the bits' type.
template <class T>
void define_comparisons(Definitions& all, const std::string& type) {
  define<bool(T, T)>(all, "setp.eq." + type, [](T a, T b) { return a == b; });
  define<bool(T, T)>(all, "setp.ne." + type, [](T a, T b) { return a != b; });
  define<bool(T, T)>(all, "setp.lt." + type, [](T a, T b) { return a < b; });
  define<bool(T, T)>(all, "setp.le." + type, [](T a, T b) { return a <= b; });
  define<bool(T, T)>(all, "setp.gt." + type, [](T a, T b) { return a > b; });
  define<bool(T, T)>(all, "setp.ge." + type, [](T a, T b) { return a >= b; });
}

/// Divides. A quotient by zero, which no card promises, is all ones.
template <class T>
T quotient(T a, T b) {
  if (b == 0) return T(-1);
  if (std::is_signed_v<T> && b == T(-1)) return T(0 - U64(a));
  return T(a / b);
}

/// Sums wrap around, as on a card: they are computed in 64 unsigned bits.
template <class T>
void define_arithmetic(Definitions& all, const std::string& type) {
  define<T(T, T)>(all, "add." + type, [](T a, T b) { return U64(a) + U64(b); });
  define<T(T, T)>(all, "sub." + type, [](T a, T b) { return U64(a) - U64(b); });
  define<T(T, T)>(all, "mul.lo." + type, [](T a, T b) { return U64(a) * U64(b); });
  define<T(T, T, T)>(all, "mad.lo." + type, [](T a, T b, T c) { return U64(a) * U64(b) + U64(c); });
  define<T(T)>(all, "neg." + type, [](T a) { return 0 - U64(a); });
  define<T(T)>(all, "abs." + type, [](T a) { return a < 0 ? 0 - U64(a) : U64(a); });
  define<T(T, T)>(all, "min." + type, [](T a, T b) { return a < b ? a : b; });
  define<T(T, T)>(all, "max." + type, [](T a, T b) { return a < b ? b : a; });
  define<T(T, T)>(all, "div." + type, [](T a, T b) { return quotient(a, b); });
  define<T(T, T)>(all, "rem." + type,
                  [](T a, T b) { return b == 0 ? U64(a) : U64(a) - U64(quotient(a, b)) * U64(b); });
  define<T(T, U32)>(all, "shr." + type, [](T a, U32 by) {
    constexpr U32 kBits = 8 * sizeof(T);
    return by < kBits ? T(a >> by) : a < 0 ? T(-1) : T(0);
  });
  define_comparisons<T>(all, type);
}

/// An operation on bits that are no number.
template <class T>
void define_logic(Definitions& all, const std::string& type) {
  define<T(T, T)>(all, "and." + type, [](T a, T b) { return a & b; });
  define<T(T, T)>(all, "or." + type, [](T a, T b) { return a | b; });
  define<T(T, T)>(all, "xor." + type, [](T a, T b) { return a ^ b; });
  define<T(T)>(all, "not." + type, [](T a) { return std::is_same_v<T, bool> ? !a : T(~U64(a)); });
  define<T(T)>(all, "mov." + type, [](T a) { return a; });
  define<T(T, T, bool)>(all, "selp." + type, [](T a, T b, bool first) { return first ? a : b; });
}

/// Moves and choices, by the names of the type.
template <class T>
void define_moves(Definitions& all, const char* one, const char* another) {
  for (const std::string type : {one, another}) {
    define<T(T)>(all, "mov." + type, [](T a) { return a; });
    define<T(T, T, bool)>(all, "selp." + type, [](T a, T b, bool first) { return first ? a : b; });
  }
}

template <class T>
void define_bits(Definitions& all, const std::string& type) {
  constexpr U32 kBits = 8 * sizeof(T);
  define_logic<T>(all, type);
  define_comparisons<T>(all, type);
  define<T(T, U32)>(all, "shl." + type, [](T a, U32 by) { return by < kBits ? T(a << by) : T(0); });
  define<T(T, U32)>(all, "shr." + type, [](T a, U32 by) { return by < kBits ? T(a >> by) : T(0); });
}

/// Defines instructions that have no 16-bit form.
template <class T>
void define_fields(Definitions& all, const std::string& type) {
  constexpr U32 kBits = 8 * sizeof(T);
  define<U32(T)>(all, "popc." + type, [](T a) { return std::popcount(a); });
  define<U32(T)>(all, "clz." + type, [](T a) { return std::countl_zero(a); });
  define<T(T)>(all, "brev." + type, [](T a) {
    T reversed = 0;
    for (U32 bit = 0; bit < kBits; ++bit) reversed |= (a >> bit & 1) << (kBits - 1 - bit);
    return reversed;
  });
  // Field `a` into b, at a place and of a length that are a byte each.
  define<T(T, T, U32, U32)>(all, "bfi." + type, [](T a, T b, U32 place, U32 length) {
    place &= 255;
    length &= 255;
    if (place >= kBits) return b;
    const T field = length >= kBits ? T(~T(0)) : T((T(1) << length) - 1);
    return T((b & ~T(field << place)) | ((a & field) << place));
  });
}

/// The four bytes that `choice` names, a digit each, of the eight of a and b.
U32 permuted(U32 a, U32 b, U32 choice) {
  const U64 both = U64{b} << 32 | a;
  U32 chosen = 0;
  for (int i = 0; i < 4; ++i) {
    const U32 digit = choice >> (4 * i) & 15;
    U32 byte = static_cast<U32>(both >> (8 * (digit & 7))) & 255;
    if ((digit & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
    chosen |= byte << (8 * i);
  }
  return chosen;
}

}  // namespace

void take_apart(std::byte* registers, const Insn& insn, Lanes lanes) {
  const std::byte* const from = registers + insn.from[0].at;
  for_each_lane(lanes, [&](int lane) {
    for (int part = 0; part < insn.count; ++part)
      std::memcpy(registers + insn.data[part].at + lane * insn.bytes,
                  from + (lane * insn.count + part) * insn.bytes, insn.bytes);
  });
}

void put_together(std::byte* registers, const Insn& insn, Lanes lanes) {
  std::byte* const to = registers + insn.to.at;
  for_each_lane(lanes, [&](int lane) {
    for (int part = 0; part < insn.count; ++part)
      std::memcpy(to + (lane * insn.count + part) * insn.bytes,
                  registers + insn.data[part].at + lane * insn.bytes, insn.bytes);
  });
}

void define_integers(Definitions& all) {
  define_bits<U16>(all, "b16");
  define_bits<U32>(all, "b32");
  define_bits<U64>(all, "b64");
  define_logic<bool>(all, "pred");
  define_moves<U16>(all, "u16", "s16");
  define_moves<U32>(all, "u32", "s32");
  define_moves<U64>(all, "u64", "s64");
  define_arithmetic<S16>(all, "s16");
  define_arithmetic<U16>(all, "u16");
  define_arithmetic<S32>(all, "s32");
  define_arithmetic<U32>(all, "u32");
  define_arithmetic<S64>(all, "s64");
  define_arithmetic<U64>(all, "u64");
  define_fields<U32>(all, "b32");
  define_fields<U64>(all, "b64");

  define<S32(S16, S16)>(all, "mul.wide.s16", [](S16 a, S16 b) { return S32{a} * b; });
  define<U32(U16, U16)>(all, "mul.wide.u16", [](U16 a, U16 b) { return U32{a} * b; });
  define<S64(S32, S32)>(all, "mul.wide.s32", [](S32 a, S32 b) { return S64{a} * b; });
  define<U64(U32, U32)>(all, "mul.wide.u32", [](U32 a, U32 b) { return U64{a} * b; });
  define<U64(S32, S32, U64)>(all, "mad.wide.s32",
                             [](S32 a, S32 b, U64 c) { return U64(S64{a} * b) + c; });
  define<U64(U32, U32, U64)>(all, "mad.wide.u32",
                             [](U32 a, U32 b, U64 c) { return U64{a} * b + c; });
  define<S32(S32, S32)>(all, "mul.hi.s32", [](S32 a, S32 b) { return S64{a} * b >> 32; });
  define<U32(U32, U32)>(all, "mul.hi.u32", [](U32 a, U32 b) { return U64{a} * b >> 32; });
  __extension__ using S128 = __int128;
  __extension__ using U128 = unsigned __int128;
  define<S64(S64, S64)>(all, "mul.hi.s64", [](S64 a, S64 b) { return S128{a} * b >> 64; });
  define<U64(U64, U64)>(all, "mul.hi.u64", [](U64 a, U64 b) { return U128{a} * b >> 64; });

  // The place of the highest bit, as the shift that would bring it to the top.
  define<U32(U32)>(all, "bfind.shiftamt.u32",
                   [](U32 a) { return a == 0 ? ~U32{0} : U32(std::countl_zero(a)); });
  define<U32(U32, U32, U32)>(all, "bfe.u32", [](U32 a, U32 place, U32 length) {
    place &= 255;
    length &= 255;
    const U32 rest = place < 32 ? a >> place : 0;
    return length < 32 ? rest & ((U32{1} << length) - 1) : rest;
  });
  define<U32(U32, U32, U32)>(all, "prmt.b32",
                             [](U32 a, U32 b, U32 choice) { return permuted(a, b, choice); });

  // Addresses are the same in their space and outside of it, but that shared memory has a window.
  constexpr U64 kSharedWindow = U64{1} << 60;
  for (const char* same :
       {"cvta.to.global.u64", "cvta.global.u64", "cvta.to.local.u64", "cvta.local.u64"})
    define<U64(U64)>(all, same, [](U64 a) { return a; });
  define<U64(U64)>(all, "cvta.shared.u64", [](U64 a) { return a + kSharedWindow; });
  define<U64(U64)>(all, "cvta.to.shared.u64", [](U64 a) { return a - kSharedWindow; });
}

}  // namespace canopy::ptx
