#include "src/hub/cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>

#include <fstream>
#include <sstream>

#include "src/hub/growing_file.h"
#include "src/hub/settings.h"
#include "tests/error_of.h"
#include "tests/temp_dir.h"

namespace canopy::hub {
namespace {

namespace fs = std::filesystem;
const std::string kCommit(40, 'c');

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(HubCache, HasTheLayoutOfHuggingFace) {
  const TempDir dir;
  const Cache cache(dir.path(), "Org/Some-Model");
  EXPECT_EQ(cache.folder(), dir / "models--Org--Some-Model");
  EXPECT_EQ(cache.blob("e"), cache.folder() / "blobs" / "e");
  EXPECT_EQ(cache.incomplete("e"), cache.folder() / "blobs" / "e.incomplete");
  EXPECT_EQ(cache.lock("e"), dir / ".locks" / "models--Org--Some-Model" / "e.lock");
  EXPECT_EQ(Cache(dir.path(), "gpt2").folder(), dir / "models--gpt2");

  dir.write("models--Org--Some-Model/blobs/e", "12345");
  cache.link(kCommit, "a/b.json", "e");
  cache.link(kCommit, "a/b.json", "e");  // again
  const fs::path link = cache.snapshot(kCommit) / "a" / "b.json";
  EXPECT_EQ(fs::read_symlink(link), "../../../blobs/e");
  EXPECT_EQ(text_of(link), "12345");
  EXPECT_TRUE(cache.has(kCommit, {"a/b.json", 5, ""}));
  EXPECT_TRUE(cache.has(kCommit, {"a/b.json", std::nullopt, ""}));
  EXPECT_FALSE(cache.has(kCommit, {"a/b.json", 6, ""}));
  EXPECT_FALSE(cache.has(kCommit, {"a/c.json", std::nullopt, ""}));

  const Listing there = cache.files_of(kCommit);
  ASSERT_EQ(there.files.size(), 1u);
  EXPECT_EQ(there.files[0].name, "a/b.json");
  EXPECT_EQ(there.files[0].bytes, 5u);
}

TEST(HubCache, RemembersRevisionsAndListings) {
  const TempDir dir;
  const Cache cache(dir.path(), "a/b");
  EXPECT_FALSE(cache.commit_of("main"));
  EXPECT_EQ(cache.commit_of(kCommit), kCommit);
  EXPECT_FALSE(cache.listing_of(kCommit));
  cache.keep("refs/pr/1", {kCommit, {{"x", 3, ""}}});
  EXPECT_EQ(text_of(dir / "models--a--b/refs/refs/pr/1"), kCommit);
  EXPECT_EQ(cache.commit_of("refs/pr/1"), kCommit);
  ASSERT_TRUE(cache.listing_of(kCommit));
  EXPECT_EQ(cache.listing_of(kCommit)->files.at(0).name, "x");
  dir.write("models--a--b/refs/main", kCommit + "\n");
  EXPECT_EQ(cache.commit_of("main"), kCommit);
  dir.write("models--a--b/refs/main", "../../x");
  EXPECT_NE(error_of([&] { cache.commit_of("main"); }).find("names no commit"), std::string::npos);
}

TEST(HubCache, KnowsTheNamesOfItsModels) {
  const fs::path snapshot = fs::path("/h/models--Org--Some-Model/snapshots") / kCommit;
  EXPECT_EQ(name_in_cache(snapshot), "Some-Model");
  EXPECT_EQ(name_in_cache(snapshot / ""), "Some-Model");
  EXPECT_EQ(name_in_cache(snapshot / "x.gguf"), "Some-Model");
  EXPECT_EQ(name_in_cache(fs::path("/h/models--gpt2/snapshots") / kCommit), "gpt2");
  for (const char* other : {"/", "/h/models--a--b", "x.gguf", "/h/models--a--b/snapshots/main"})
    EXPECT_EQ(name_in_cache(other), "");
}

TEST(GrowingFile, GoesOnFromWhatIsThere) {
  const TempDir dir;
  dir.write("blobs/e.incomplete", "ab");
  {
    GrowingFile file(dir / "blobs/e.incomplete", dir / "locks/e.lock", {});
    EXPECT_EQ(file.bytes(), 2u);
    file.read_beginning({});
    file.append("c");
    EXPECT_EQ(file.bytes(), 3u);
    // The checksum of "abc", as FIPS 180 gives it.
    EXPECT_EQ(file.checksum(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    file.start_again();
    file.append("xyz");
    file.finish(dir / "blobs/e");
  }
  EXPECT_EQ(text_of(dir / "blobs/e"), "xyz");
  EXPECT_FALSE(fs::exists(dir / "blobs/e.incomplete"));
}

TEST(GrowingFile, WaitsForItsLockUntilItIsStopped) {
  const TempDir dir;
  dir.write("e.lock", "");
  const UniqueFd held = open_file(dir / "e.lock");
  ASSERT_EQ(flock(held.get(), LOCK_EX), 0);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THROW(GrowingFile(dir / "e.incomplete", dir / "e.lock", stop.get_token()), Stopped);
}

/// Sets variables for a test, and leaves none of the Hub's.
class HubSettings : public testing::Test {
 protected:
  static void clear() {
    for (const char* name : {"HF_HOME", "HF_HUB_CACHE", "HF_TOKEN", "HF_TOKEN_PATH", "HF_ENDPOINT",
                             "HF_HUB_OFFLINE", "HF_HUB_DOWNLOAD_TIMEOUT", "XDG_CACHE_HOME"})
      unsetenv(name);
  }
  void SetUp() override {
    clear();
    setenv("HOME", dir.path().c_str(), 1);
  }
  void TearDown() override { clear(); }
  const TempDir dir;
};

TEST_F(HubSettings, AreHuggingFacesOwn) {
  Settings settings = settings_from_environment();
  EXPECT_EQ(settings.cache, dir / ".cache/huggingface/hub");
  EXPECT_EQ(settings.endpoint, "https://huggingface.co");
  EXPECT_EQ(settings.token, "");
  EXPECT_FALSE(settings.offline);
  EXPECT_EQ(settings.most_silence.count(), 10);
  setenv("XDG_CACHE_HOME", "/caches", 1);
  EXPECT_EQ(settings_from_environment().cache, "/caches/huggingface/hub");
  setenv("HF_HOME", "~/h", 1);
  EXPECT_EQ(settings_from_environment().cache, dir / "h/hub");
  setenv("HF_HUB_CACHE", "/c", 1);
  setenv("HF_ENDPOINT", "http://localhost:1/", 1);
  setenv("HF_HUB_OFFLINE", "yes", 1);
  setenv("HF_HUB_DOWNLOAD_TIMEOUT", "3", 1);
  settings = settings_from_environment();
  EXPECT_EQ(settings.cache, "/c");
  EXPECT_EQ(settings.endpoint, "http://localhost:1");
  EXPECT_TRUE(settings.offline);
  EXPECT_EQ(settings.most_silence.count(), 3);
}

TEST_F(HubSettings, FindTheToken) {
  dir.write(".cache/huggingface/token", "hf_file\n");
  EXPECT_EQ(settings_from_environment().token, "hf_file");
  dir.write("elsewhere", "hf_elsewhere");
  setenv("HF_TOKEN_PATH", (dir / "elsewhere").c_str(), 1);
  EXPECT_EQ(settings_from_environment().token, "hf_elsewhere");
  setenv("HF_TOKEN", " hf_set\r\n", 1);
  EXPECT_EQ(settings_from_environment().token, "hf_set");
}

TEST_F(HubSettings, ThatAreWrongAreNamed) {
  for (const auto& [name, value] :
       {std::pair("HF_TOKEN", "a\nHost: b"), std::pair("HF_ENDPOINT", "ftp://x"),
        std::pair("HF_HUB_DOWNLOAD_TIMEOUT", "0"), std::pair("HF_HUB_DOWNLOAD_TIMEOUT", "1s")}) {
    setenv(name, value, 1);
    EXPECT_EQ(error_of([] { settings_from_environment(); }).rfind(name, 0), 0u) << name;
    clear();
  }
}

}  // namespace
}  // namespace canopy::hub
