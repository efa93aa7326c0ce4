#pragma once
#include <cstdlib>
#include <filesystem>

namespace canopy {

/// tests/data: where it was when this was built, or where CANOPY_TEST_DATA says that it is now.
inline std::filesystem::path test_data() {
  const char* const now = std::getenv("CANOPY_TEST_DATA");
  return now != nullptr ? now : CANOPY_TEST_DATA;
}

}  // namespace canopy
