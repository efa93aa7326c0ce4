#pragma once
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace canopy {

/// tests/data: where it was when this was built, or where CANOPY_TEST_DATA says that it is now.
inline std::filesystem::path test_data() {
  const char* const now = std::getenv("CANOPY_TEST_DATA");
  return now != nullptr ? now : CANOPY_TEST_DATA;
}

/// The name of a test of a model: that of its file, in letters that googletest takes.
inline std::string test_name(std::string file) {
  std::replace(file.begin(), file.end(), '.', '_');
  return file;
}

}  // namespace canopy
