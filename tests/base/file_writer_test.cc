#include "src/base/file_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <thread>

#include "tests/error_of.h"
#include "tests/temp_dir.h"

namespace canopy {
namespace {

namespace fs = std::filesystem;

class WriteFile : public testing::Test {
 protected:
  std::string read(const fs::path& name) const {
    return read_file(dir_.path() / name, 1 << 20, FileKind::kOfUser);
  }
  void expect_refused(const fs::path& file, std::string_view words) const {
    const std::string message = error_of([&] { write_file(file, "new"); });
    EXPECT_NE(message.find(words), std::string::npos) << message;
    EXPECT_NE(message.find(file.string()), std::string::npos) << message;
  }
  /// Names in the folder.
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_.path()))
      names.push_back(entry.path().filename());
    return names;
  }

  TempDir dir_;
};

TEST_F(WriteFile, TakesItsPlaceOnlyWhenItIsFinished) {
  dir_.write("file", "old");
  fs::permissions(dir_ / "file", fs::perms(0640));
  {
    FileWriter abandoned(dir_ / "file");
    abandoned.write("half");
  }
  EXPECT_EQ(read("file"), "old");
  FileWriter writer(dir_ / "file");
  writer.write(std::string(200'000, 'x'));
  EXPECT_EQ(read("file"), "old");
  writer.write("end");
  writer.finish();
  EXPECT_EQ(read("file"), std::string(200'000, 'x') + "end");
  EXPECT_EQ(fs::status(dir_ / "file").permissions(), fs::perms(0640));
  EXPECT_EQ(entries(), std::vector<std::string>{"file"});
}

TEST_F(WriteFile, FollowsLinksAlsoToWhatIsNotThereYet) {
  fs::create_directory(dir_ / "other");
  fs::create_symlink("other/file", dir_ / "link");
  fs::create_symlink("link", dir_ / "link to link");
  for (const char* text : {"first", "second"}) {
    write_file(dir_ / "link to link", text);
    EXPECT_TRUE(fs::is_symlink(dir_ / "link"));
    EXPECT_TRUE(fs::is_symlink(dir_ / "link to link"));
    EXPECT_FALSE(fs::is_symlink(dir_ / "other" / "file"));
    EXPECT_EQ(read("other/file"), text);
  }
  fs::create_symlink("loop", dir_ / "loop");
  expect_refused(dir_ / "loop", "Too many levels");
}

TEST_F(WriteFile, WritesIntoDevicesAndPipesAndLeavesThemThere) {
  write_file("/dev/null", "x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  fs::create_symlink("/dev/full", dir_ / "full");
  expect_refused(dir_ / "full", "No space left");
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  EXPECT_TRUE(fs::is_symlink(dir_ / "full"));

  const auto pipe = dir_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::string got;
  std::jthread reader([&] { got = read("pipe"); });
  const std::string text(300'000, 'p');  // more than a pipe holds
  write_file(pipe, text);
  reader.join();
  EXPECT_EQ(got, text);
  EXPECT_TRUE(fs::is_fifo(pipe));
  expect_refused(pipe, "nobody reads");
}

TEST_F(WriteFile, AppendsToWhatIsOpenAlready) {
  dir_.write("out", "text\n");
  const UniqueFd open_one(open((dir_ / "out").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  write_file("/proc/self/fd/" + std::to_string(open_one.get()), "report\n");
  EXPECT_EQ(read("out"), "text\nreport\n");
}

TEST_F(WriteFile, RefusesAtOnceWhatCannotBeWritten) {
  dir_.write("file", "old");
  for (const auto& [path, says] : {std::pair{dir_.path(), "Is a directory"},
                                   {dir_ / "no" / "such", "No such file"},
                                   {dir_ / "file" / "below", "Not a directory"}}) {
    const std::string message = error_of([&, at = path] { FileWriter writer(at); });
    EXPECT_NE(message.find(says), std::string::npos) << message;
  }
  EXPECT_EQ(read("file"), "old");
}

TEST_F(WriteFile, ReplacesWhatAKilledRunLeftButNotWhatOneWrites) {
  dir_.write("file.canopy-partial", "left");
  write_file(dir_ / "file", "new");
  EXPECT_EQ(entries(), std::vector<std::string>{"file"});
  const FileWriter one(dir_ / "file");
  expect_refused(dir_ / "file", "being written by another run");
  EXPECT_EQ(read("file"), "new");
}

TEST_F(WriteFile, ThatMayNotGrowSoFarLeavesNothingBehind) {
  std::signal(SIGXFSZ, SIG_IGN);  // as main() has it
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit tight{100'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const std::string message =
      error_of([&] { write_file(dir_ / "file", std::string(200'000, 'x')); });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(message.find("File too large"), std::string::npos) << message;
  EXPECT_TRUE(entries().empty());
}

}  // namespace
}  // namespace canopy
