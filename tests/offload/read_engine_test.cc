#include "offload/io/read_engine.h"

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <thread>

#include "src/base/error.h"
#include "src/machine/host_slab.h"
#include "tests/checkpoint/tiny_checkpoint.h"

namespace canopy {
namespace {

using test::random_bytes;
using test::write_file;

class Engines : public testing::TestWithParam<ReadEngineOptions> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Engines,
                         testing::Values(ReadEngineOptions{4, true, true},
                                         ReadEngineOptions{4, true, false},
                                         ReadEngineOptions{4, false, true},
                                         ReadEngineOptions{4, false, false}),
                         [](const auto& info) {
                           return std::string(info.param.io_uring ? "Uring" : "Pread") +
                                  (info.param.direct ? "Direct" : "Buffered");
                         });

TEST_P(Engines, ReadTheBytesOfTwoFilesInsideAndOutsideRegisteredSlabs) {
  const TempDir dir;
  const std::array contents{random_bytes(40'960, 1), random_bytes(81'920, 2)};
  const std::vector<std::filesystem::path> files{write_file(dir.path() / "a", contents[0]),
                                                 write_file(dir.path() / "b", contents[1])};
  const HostSlab registered(65'536), other(65'536);
  const std::array slabs{registered.bytes()};
  Notes notes;
  const auto engine = make_read_engine(files, slabs, GetParam(), notes);
  ASSERT_EQ(engine->depth(), 4u);

  std::array<ReadDone, 4> done;
  EXPECT_EQ(engine->wait(done), 0u) << "nothing is in flight";
  for (std::uint64_t round = 0; round < 20; ++round) {
    std::array<ReadRequest, 4> requests;
    for (std::size_t i = 0; i < 4; ++i) {
      const HostSlab& slab = i % 2 ? registered : other;
      requests[i] = {static_cast<int>(i / 2), (round + i) % 9 * 4096,
                     slab.bytes().subspan(i * 16'384, 4096), i};
    }
    engine->submit(requests);
    std::set<std::uint64_t> tags;
    while (tags.size() < 4) {
      const std::size_t count = engine->wait(done);
      ASSERT_GT(count, 0u);
      for (const ReadDone& d : std::span(done).first(count)) {
        ASSERT_EQ(d.result, 4096);
        tags.insert(d.tag);
      }
    }
    for (const ReadRequest& r : requests)
      EXPECT_TRUE(std::equal(r.into.begin(), r.into.end(),
                             contents[static_cast<std::size_t>(r.file)].begin() +
                                 static_cast<std::ptrdiff_t>(r.offset)));
  }
}

TEST_P(Engines, ReportTheShortReadAtTheEndOfAFileAndNothingBehindIt) {
  const TempDir dir;
  const std::vector content = random_bytes(5000, 3);
  const std::vector<std::filesystem::path> files{write_file(dir.path() / "a", content)};
  const HostSlab slab(16'384);
  Notes notes;
  const auto engine = make_read_engine(files, {}, GetParam(), notes);
  const std::array requests{ReadRequest{0, 0, slab.bytes().first(8192), 0},
                            ReadRequest{0, 8192, slab.bytes().last(8192), 1}};
  engine->submit(requests);
  std::array<ReadDone, 4> done;
  for (std::size_t seen = 0; seen < 2;) {
    const std::size_t count = engine->wait(done);
    for (const ReadDone& d : std::span(done).first(count))
      EXPECT_EQ(d.result, d.tag == 0 ? 5000 : 0);
    seen += count;
  }
  EXPECT_TRUE(std::equal(content.begin(), content.end(), slab.data()));
}

TEST_P(Engines, MayBeDestroyedWithReadsInFlight) {
  const TempDir dir;
  const std::vector<std::filesystem::path> files{
      write_file(dir.path() / "a", random_bytes(1 << 22, 4))};
  for (int round = 0; round < 20; ++round) {
    const HostSlab slab(1 << 22);
    const std::array slabs{slab.bytes()};
    Notes notes;
    const auto engine = make_read_engine(files, slabs, GetParam(), notes);
    std::array<ReadRequest, 4> requests;
    for (std::size_t i = 0; i < 4; ++i)
      requests[i] = {0, i << 20, slab.bytes().subspan(i << 20, 1 << 20), i};
    engine->submit(requests);
  }
}

TEST_P(Engines, NameTheFileThatIsMissing) {
  const std::vector<std::filesystem::path> files{"/nowhere/model.safetensors"};
  Notes notes;
  try {
    make_read_engine(files, {}, GetParam(), notes);
    FAIL() << "opened a missing file";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("/nowhere/model.safetensors"), std::string::npos);
  }
}

TEST_P(Engines, RefuseAFileIndexTheyWereNotGiven) {
  const TempDir dir;
  const std::vector<std::filesystem::path> files{
      write_file(dir.path() / "a", random_bytes(4096, 5))};
  const HostSlab slab(4096);
  Notes notes;
  const auto engine = make_read_engine(files, {}, GetParam(), notes);
  const std::array requests{ReadRequest{1, 0, slab.bytes(), 0}};
  EXPECT_THROW(engine->submit(requests), Error);
}

bool mentions(const Notes& notes, std::string_view words) {
  return std::any_of(notes.begin(), notes.end(), [&](const std::string& note) {
    return note.find(words) != std::string::npos;
  });
}

TEST(Fallbacks, AFileThatRefusesDirectReadsIsReadThroughThePageCacheAndReported) {
  // procfs has no direct IO on any kernel (tmpfs has had since Linux 6.6).
  const std::vector<std::filesystem::path> files{"/proc/self/auxv"};
  Notes notes;
  const auto engine = make_read_engine(files, {}, {}, notes);
  EXPECT_TRUE(mentions(notes, "O_DIRECT is not possible: /proc/self/auxv"));
  const HostSlab slab(4096);
  const std::array requests{ReadRequest{0, 0, slab.bytes(), 0}};
  engine->submit(requests);
  std::array<ReadDone, 1> done;
  ASSERT_EQ(engine->wait(done), 1u);
  EXPECT_GT(done[0].result, 0);
}

TEST(Fallbacks, FilesInSharedMemoryCanBeRead) {
  if (!std::filesystem::is_directory("/dev/shm")) GTEST_SKIP() << "no /dev/shm";
  const TempDir dir("/dev/shm");
  const std::vector content = random_bytes(8192, 6);
  const std::vector<std::filesystem::path> files{write_file(dir.path() / "a", content)};
  Notes notes;
  const auto engine = make_read_engine(files, {}, {}, notes);
  const HostSlab slab(8192);
  const std::array requests{ReadRequest{0, 0, slab.bytes(), 0}};
  engine->submit(requests);
  std::array<ReadDone, 1> done;
  ASSERT_EQ(engine->wait(done), 1u);
  EXPECT_EQ(done[0].result, 8192);
  EXPECT_TRUE(std::equal(content.begin(), content.end(), slab.data()));
}

/// Refuses io_uring to this thread alone from now on, as in a container.
bool forbid_io_uring() {
  std::array filter{sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                    sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
                    sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                    sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

TEST(Fallbacks, WhereIoUringIsRefusedPreadTakesOverAndIsReported) {
  const TempDir dir;
  const std::vector content = random_bytes(8192, 7);
  const std::vector<std::filesystem::path> files{write_file(dir.path() / "a", content)};
  bool forbidden = false, read_all = false;
  Notes notes;
  std::thread([&] {
    if (!(forbidden = forbid_io_uring())) return;
    const auto engine = make_read_engine(files, {}, {}, notes);
    const HostSlab slab(8192);
    const std::array requests{ReadRequest{0, 0, slab.bytes(), 0}};
    engine->submit(requests);
    std::array<ReadDone, 1> done;
    read_all = engine->wait(done) == 1 && done[0].result == 8192 &&
               std::equal(content.begin(), content.end(), slab.data());
  }).join();
  if (!forbidden) GTEST_SKIP() << "this system does not let us install a seccomp filter";
  EXPECT_TRUE(read_all);
  EXPECT_TRUE(mentions(notes, "io_uring is refused (Operation not permitted)"));
}

/// Binds this thread alone by the memlock limit from now on, as an ordinary user is.
bool drop_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> none{};
  return syscall(SYS_capset, &header, none.data()) == 0;
}

TEST(Fallbacks, WhereTheMemlockLimitForbidsRegistrationReadsGoOnUnregistered) {
  rlimit limit{};
  constexpr std::size_t kBytes = 32u << 20;
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur > kBytes / 2)
    GTEST_SKIP() << "this process may lock memory";
  const TempDir dir;
  const std::vector content = random_bytes(8192, 8);
  const std::vector<std::filesystem::path> files{write_file(dir.path() / "a", content)};
  bool dropped = false, refused = false, read_all = false;
  Notes notes;
  std::thread([&] {
    if (!(dropped = drop_capabilities())) return;
    const HostSlab slab(kBytes);
    const std::array slabs{slab.bytes()};
    const auto engine = make_uring_engine(files, slabs, {}, notes);
    if ((refused = engine == nullptr)) return;
    const std::array requests{ReadRequest{0, 0, slab.bytes().first(8192), 0}};
    engine->submit(requests);
    std::array<ReadDone, 1> done;
    read_all = engine->wait(done) == 1 && done[0].result == 8192 &&
               std::equal(content.begin(), content.end(), slab.data());
  }).join();
  if (!dropped) GTEST_SKIP() << "this thread cannot give up its capabilities";
  if (refused) GTEST_SKIP() << "no io_uring here: " << notes.at(0);
  EXPECT_TRUE(read_all);
  EXPECT_TRUE(mentions(notes, "unregistered buffers"));
}

}  // namespace
}  // namespace canopy
