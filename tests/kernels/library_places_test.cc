#include "kernels/library_places.h"

#include <gtest/gtest.h>

#include "tests/temp_dir.h"

namespace canopy {
namespace {

namespace fs = std::filesystem;

TEST(LibraryPlaces, AToolkitComesBeforeWhatPipInstalledAndOnlyFoldersThatExistCount) {
  const TempDir dir;
  const fs::path root = dir.path();
  const std::vector<fs::path> expected{root / "mine/lib64",
                                       root / "usr/local/cuda-13.0/targets/x86_64-linux/lib",
                                       root / "env/lib/python3.11/site-packages/nvidia/cu13/lib",
                                       root / "env/lib/python3.11/site-packages/nvidia/cublas/lib",
                                       root / "usr/lib/python3.12/dist-packages/nvidia/cu13/lib"};
  for (const fs::path& folder : expected) fs::create_directories(folder);
  fs::create_directories(root / "usr/local/cuda-12.4/lib64");
  fs::create_directories(root / "env/lib/python3.11/site-packages/nvidia/no_libraries");
  LibraryHints hints;
  hints.cuda_home = root / "mine";
  hints.virtual_env = root / "env";
  hints.root = root;
  EXPECT_EQ(cuda_library_places(hints, 13), expected);
}

TEST(LibraryPlaces, APythonOnThePathIsFollowedToWhereItIsInstalled) {
  const TempDir dir;
  const fs::path root = dir.path(), wheel = "lib/python3.11/site-packages/nvidia/cublas/lib";
  fs::create_directories(root / "versions/bin");
  fs::create_directories(root / "versions" / wheel);
  fs::create_directories(root / "env/bin");
  fs::create_symlink(root / "versions/bin/python3.11", root / "env/bin/python3");
  LibraryHints hints;
  hints.root = root;
  hints.path = (root / "nothing").string() + ":" + (root / "env/bin").string();
  EXPECT_TRUE(cuda_library_places(hints, 13).empty());  // a link to nothing
  fs::create_directories(root / "versions/bin/python3.11");
  EXPECT_EQ(cuda_library_places(hints, 13),
            std::vector<fs::path>{fs::canonical(root / "versions") / wheel});
}

}  // namespace
}  // namespace canopy
