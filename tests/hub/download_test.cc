#include "src/hub/download.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>

#include "src/hub/settings.h"
#include "tests/error_of.h"
#include "tests/temp_dir.h"

namespace canopy::hub {
namespace {

/// No host can be asked by this scheme, so each connection fails as soon as it is used: often
/// before the last thread is there.
TEST(HubDownload, EndsWhereConnectionsFailBeforeAllAreStarted) {
  using namespace std::chrono;
  const TempDir dir;
  const Address address{"none://", "etag", 64u << 20};
  std::vector<Connection> connections;
  for (int i = 0; i < 4; ++i) connections.emplace_back(Settings{});
  GrowingFile file(dir / "file", dir / "lock", {});
  const auto begin = steady_clock::now();
  bool hangs = false;
  const auto on_bytes = [&](std::uint64_t) {
    hangs = steady_clock::now() - begin > 20s;
    if (hangs) throw std::runtime_error("the download does not end");
  };
  const FindAddress find = [&](Connection&, const std::stop_token&) { return address; };
  for (int i = 0; i < 1000; ++i) {
    const std::string error =
        error_of([&] { download(connections, address, find, file, on_bytes, {}); });
    ASSERT_FALSE(hangs) << "at download " << i;
    ASSERT_TRUE(error.starts_with("none://: ")) << error;
  }
}

}  // namespace
}  // namespace canopy::hub
