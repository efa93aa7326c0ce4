#pragma once
#include <filesystem>
#include <string>

namespace canopy {

/// Advice for where the system refuses a fast path, with the command: for notes and for `canopy
/// doctor`. The first and the last look for the cause on this machine and name that one.

/// `error`: the errno of io_uring_setup.
std::string io_uring_advice(int error);
/// Advises on memory that cannot be registered because this user may lock too little.
std::string memlock_advice();
/// Advises on a file that cannot be read with O_DIRECT, or lies in memory.
std::string direct_advice(const std::filesystem::path& file);

}  // namespace canopy
