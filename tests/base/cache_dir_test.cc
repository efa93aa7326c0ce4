#include "src/base/cache_dir.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/error_of.h"

namespace canopy {
namespace {

TEST(CacheDir, IsTheUsersCacheDirectoryElseOneBelowHome) {
  setenv("HOME", "/home/somebody", 1);
  setenv("XDG_CACHE_HOME", "/var/caches", 1);
  EXPECT_EQ(cache_dir(), "/var/caches/canopy");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(cache_dir(), "/home/somebody/.cache/canopy");
  for (const char* not_absolute : {"", "caches"}) {
    setenv("XDG_CACHE_HOME", not_absolute, 1);
    EXPECT_EQ(cache_dir(), "/home/somebody/.cache/canopy");
  }
}

TEST(CacheDir, IsAskedForWhereTheUserHasNoHome) {
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  EXPECT_NE(error_of([] { cache_dir(); }).find("XDG_CACHE_HOME or HOME"), std::string::npos);
}

TEST(CacheDir, ThatIsRelativeIsSaidToBeIgnored) {
  setenv("XDG_CACHE_HOME", "caches", 1);
  EXPECT_NE(ignored_cache_dir().find("'caches'"), std::string::npos);
  for (const char* fine : {"", "/var/caches"}) {
    setenv("XDG_CACHE_HOME", fine, 1);
    EXPECT_EQ(ignored_cache_dir(), "");
  }
}

}  // namespace
}  // namespace canopy
