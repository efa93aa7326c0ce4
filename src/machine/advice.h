#pragma once
#include <filesystem>
#include <string>

namespace canopy {

/// What to do where the system refuses a fast path, with the command: for notes and for `canopy
/// doctor`. Each looks for the cause on this machine and names that one.

/// `error`: the errno of io_uring_setup.
std::string io_uring_advice(int error);
/// What to do where memory cannot be registered because this user may lock too little.
std::string memlock_advice();
/// What to do where the file cannot be read with O_DIRECT, or lies in memory.
std::string direct_advice(const std::filesystem::path& file);

}  // namespace canopy
