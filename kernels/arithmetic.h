#pragma once
#include <string>

namespace canopy {

/// Names what the bits of the CPU's sums depend on, its instruction set: two processes with the
/// same name have the same bits.
std::string cpu_arithmetic();

}  // namespace canopy
