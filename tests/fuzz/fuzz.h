#pragma once
// Functions that the fuzz targets share. A target is a file of this folder with a definition of
// fuzz_one(); libFuzzer runs it where CANOPY_FUZZ is on, tests/fuzz/replay.cc everywhere else.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/error.h"
#include "src/checkpoint/checkpoint.h"

namespace canopy::fuzz {

/// One input, read by the target's reader. Ends the process if it reads it wrongly.
void fuzz_one(std::string_view input);

/// Ends the process, saying what should have been, unless `ok`.
void expect(bool ok, std::string_view what);
/// Expects a message that can be shown: lines of valid UTF-8 without control characters, bounded.
void expect_message(std::string_view message);

/// Runs what reads an input; false if it threw an Error, whose message is checked. Other exceptions
/// pass: they are findings.
template <class Body>
bool reads(Body&& body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    expect_message(error.what());
    return false;
  }
}

/// A folder of this process, in memory where that can be, removed at its end.
const std::filesystem::path& folder();
/// Writes a file of the folder, and returns its path.
std::filesystem::path put(std::string_view name, std::string_view bytes);

/// Expects what Checkpoint promises of its tensors: each lies inside its file, has the size of its
/// shape, and shares no byte with another.
void expect_consistent(const std::vector<TensorEntry>& tensors,
                       const std::vector<std::filesystem::path>& files);

/// Splits an input at its first zero byte; the second part is empty where there is none.
std::pair<std::string_view, std::string_view> split(std::string_view input);

/// The most heap memory that reading one input may take; the inputs are smaller than 1 MB.
inline constexpr std::int64_t kMostBytes = 64 << 20;

}  // namespace canopy::fuzz
