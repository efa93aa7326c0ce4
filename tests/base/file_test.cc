#include "src/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/error_of.h"
#include "tests/temp_dir.h"

namespace canopy {
namespace {

using namespace std::chrono_literals;

class ReadFile : public testing::Test {
 protected:
  std::string refusal(const std::filesystem::path& file, FileKind kind, std::uint64_t most = 1000) {
    const std::string message = error_of([&] { read_file(file, most, kind); });
    EXPECT_NE(message.find(file.string()), std::string::npos) << message;
    return message;
  }
  void expect_refused(const std::filesystem::path& file, FileKind kind, std::string_view words) {
    const std::string message = refusal(file, kind);
    EXPECT_NE(message.find(words), std::string::npos) << message;
  }
  std::filesystem::path make_pipe() {
    const auto pipe = dir_ / "pipe";
    EXPECT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    return pipe;
  }

  TempDir dir_;
};

TEST_F(ReadFile, GivesAllBytesUpToItsBound) {
  const std::string text = std::string("a\0b\n", 4) + std::string(990, '\xff');
  dir_.write("file", text);
  for (const FileKind kind : {FileKind::kOfModel, FileKind::kOfUser})
    EXPECT_EQ(read_file(dir_ / "file", text.size(), kind), text);
  EXPECT_EQ(read_file("/dev/null", 0, FileKind::kOfUser), "");
  EXPECT_EQ(read_file("/proc/self/comm", 100, FileKind::kOfUser).back(), '\n');  // says 0 bytes
  EXPECT_NE(refusal(dir_ / "file", FileKind::kOfUser, text.size() - 1).find("994 bytes"),
            std::string::npos);
}

TEST_F(ReadFile, RefusesWhatHasNoEnd) {
  expect_refused("/dev/zero", FileKind::kOfUser, "more than the 1000 bytes");
  dir_.write("sparse", "");
  std::filesystem::resize_file(dir_ / "sparse", std::uintmax_t{10} << 30);
  expect_refused(dir_ / "sparse", FileKind::kOfUser, "10737418240 bytes");
  expect_refused(dir_ / "sparse", FileKind::kOfModel, "10737418240 bytes");
}

TEST_F(ReadFile, SaysWhatIsNoFile) {
  expect_refused(dir_.path(), FileKind::kOfUser, "Is a directory");
  expect_refused(dir_.path(), FileKind::kOfModel, "Is a directory");
  expect_refused(dir_ / "nothing", FileKind::kOfModel, "No such file");
  expect_refused("/dev/zero", FileKind::kOfModel, "a device");
  expect_refused(make_pipe(), FileKind::kOfModel, "a pipe");
}

TEST_F(ReadFile, OfAModelThatIsAGitLfsPointerSaysWhatToDo) {
  dir_.write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
  expect_refused(dir_ / "tokenizer.json", FileKind::kOfModel, "git lfs pull");
}

TEST_F(ReadFile, APipeIsReadToItsEndHoweverSlowItsWriter) {
  const auto pipe = make_pipe();
  std::jthread writer([&] {
    const UniqueFd out(open(pipe.c_str(), O_WRONLY | O_CLOEXEC));
    for (const char* part : {"one ", "two"}) {
      std::this_thread::sleep_for(20ms);
      EXPECT_GT(write(out.get(), part, std::string_view(part).size()), 0);
    }
  });
  EXPECT_EQ(read_file(pipe, 1000, FileKind::kOfUser), "one two");
}

TEST_F(ReadFile, APipeWithoutAWriterIsNamedAfterASecond) {
  expect_refused(make_pipe(), FileKind::kOfUser, "nobody writes");
}

TEST_F(ReadFile, AStopRequestEndsTheWaitForAWriter) {
  const auto pipe = make_pipe();
  const UniqueFd silent(open(pipe.c_str(), O_RDWR | O_CLOEXEC));
  std::stop_source stop;
  std::jthread later([&] {
    std::this_thread::sleep_for(20ms);
    stop.request_stop();
  });
  EXPECT_THROW(read_file(pipe, 1000, FileKind::kOfUser, stop.get_token()), Stopped);
}

}  // namespace
}  // namespace canopy
