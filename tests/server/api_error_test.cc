#include "src/server/replies/api_error.h"

#include <gtest/gtest.h>

#include "src/base/error.h"

namespace canopy::server {
namespace {

TEST(Reported, HasNoPlaceInTheSources) {
  EXPECT_EQ(reported(Error("short read: 5 of 9 bytes")), "short read: 5 of 9 bytes");
  EXPECT_EQ(reported(Error("a\nb (c)").with("reading x").with("sweeping")),
            "a\nb (c), while reading x, while sweeping");
  EXPECT_EQ(
      reported(std::string("x (offload/io/uring_engine.cc:88)\n  while y (kernels/ops.cu:7)")),
      "x, while y");
  EXPECT_EQ(reported(std::string("(a) (b.cc) (b.cc:) (c d.cc:1) (e.py:3) (f.cc:1")),
            "(a) (b.cc) (b.cc:) (c d.cc:1) (e.py:3) (f.cc:1");
}

}  // namespace
}  // namespace canopy::server
