#include "kernels/library_places.h"

#include <dlfcn.h>
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

/// Loads the tiny library, of which a program built for CUDA `built_for` finds copies of these
/// majors; the file that it came from, or what was tried.
std::string loaded_from(const fs::path& root, int built_for) {
  LibraryHints hints;
  hints.root = root;
  const CudaLibrary library = load_cuda_library("canopy_tiny", "canopy_tinyLt", built_for, hints);
  if (library.handle == nullptr) return library.tried;
  void* const function = dlsym(library.handle, "canopy_tiny");
  Dl_info info{};
  EXPECT_NE(dladdr(function, &info), 0);
  EXPECT_EQ(reinterpret_cast<int (*)()>(function)(), 42);
  const std::string file = info.dli_fname;
  dlclose(library.handle);
  return file;
}

TEST(LibraryPlaces, ALibraryOfEitherMajorIsLoadedAndTheOneBuiltForFirst) {
  const TempDir dir;
  const fs::path root = dir.path();
  const auto install = [&](int major) {
    const fs::path folder = root / ("usr/local/cuda-" + std::to_string(major) + ".4/lib64");
    const fs::path file = folder / ("libcanopy_tiny.so." + std::to_string(major));
    fs::create_directories(folder);
    fs::copy_file(CANOPY_TINY_LIBRARY, file);
    return file;
  };
  for (const int built_for : {12, 13}) {
    const std::string tried = loaded_from(root, built_for);
    EXPECT_NE(tried.find("libcanopy_tiny.so.12"), std::string::npos) << tried;
    EXPECT_NE(tried.find("libcanopy_tiny.so.13"), std::string::npos) << tried;
  }
  const fs::path twelve = install(12);
  EXPECT_EQ(loaded_from(root, 12), twelve);
  EXPECT_EQ(loaded_from(root, 13), twelve);
  const fs::path thirteen = install(13);
  EXPECT_EQ(loaded_from(root, 12), twelve);
  EXPECT_EQ(loaded_from(root, 13), thirteen);
}

}  // namespace
}  // namespace canopy
