#pragma once
// Parts that the tests of the machine share: kernels of a few lines of PTX, and what was found.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/ptx/memory.h"

namespace canopy::ptx {

class FoundFaults final : public Faults {
 public:
  void add(const std::string& fault) override { all.push_back(fault); }
  std::string text() const {
    std::string joined;
    for (const std::string& one : all) joined += one + "\n";
    return joined;
  }
  std::vector<std::string> all;
};

/// Looks for a fault of that kind among those that were found.
inline testing::AssertionResult finds(const std::string& found, const std::string& fault) {
  if (found.find(fault) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "no \"" << fault << "\" in: " << found;
}

/// A kernel called tiny, of blocks of up to 64 threads. Its argument is an address, in %rd1; %r1 is
/// the thread's number, %rd2 the address of the thread's own word; `shared` has 256 bytes.
inline std::string tiny_kernel(const std::string& body) {
  return R"(.version 9.0
.target sm_80
.address_size 64
.visible .entry tiny(
	.param .align 8 .b8 tiny_param_0[8]
)
.maxntid 64, 1, 1
{
	.reg .pred %p<4>;
	.reg .b16 %rs<8>;
	.reg .f32 %f<8>;
	.reg .f64 %fd<4>;
	.reg .b32 %r<16>;
	.reg .b64 %rd<8>;
	.shared .align 4 .b8 shared[256];
	ld.param.u64 %rd1, [tiny_param_0];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd2, %rd1, %rd2;
)" + body +
         "\n\tret;\n}\n";
}

/// A text with one piece of it, of which there must be one, in another form.
inline std::string with(std::string text, const std::string& piece, const std::string& other) {
  const std::size_t at = text.find(piece);
  if (at == std::string::npos) return "the text lacks " + piece;
  return text.replace(at, piece.size(), other);
}

}  // namespace canopy::ptx
