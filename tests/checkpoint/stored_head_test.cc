// A head that is stored although the config ties it to the embedding.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "src/checkpoint/checkpoint.h"
#include "tests/checkpoint/checkpoint_files.h"

namespace canopy::testing {
namespace {

class StoredHead : public ::testing::Test {
 protected:
  StoredHead() { setenv("XDG_CACHE_HOME", (dir_ / "cache").c_str(), 1); }

  /// A tied model that stores a head: `change` receives a copy of its embedding.
  template <class Change>
  Checkpoint open_with(const Change& change, int shards = 1) {
    TinyOptions options;
    options.tied = true;
    TinyModel model = tiny_model(options);
    FileTensor head = model.at("model.embed_tokens.weight");
    head.name = "lm_head.weight";
    change(head);
    model.tensors.push_back(head);
    write_hugging_face(dir_ / "model", model, shards, 3);
    return Checkpoint::open(dir_ / "model");
  }
  std::size_t verdicts() const {
    std::error_code none;
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(dir_ / "cache" / "canopy", none))
      if (entry.path().filename().string().starts_with("tied-head-")) ++count;
    return count;
  }

  const TempDir dir_;
};

TEST_F(StoredHead, ThatDiffersInAnyByteIsTheHeadAndANoteSaysSo) {
  for (const int shards : {1, 3})
    for (const bool last : {false, true}) {
      const Checkpoint model = open_with(
          [&](FileTensor& head) { (last ? head.bytes.back() : head.bytes.front()) ^= 1; }, shards);
      EXPECT_FALSE(model.config().tied_head);
      EXPECT_NE(model.find("lm_head.weight"), nullptr);
      ASSERT_EQ(model.config().notes.size(), 1u);
      EXPECT_NE(model.config().notes[0].find("lm_head.weight is stored and differs from "
                                             "model.embed_tokens.weight"),
                std::string::npos);
    }
  EXPECT_EQ(verdicts(), 0u);
}

TEST_F(StoredHead, OfAnotherTypeIsTheHead) {
  std::mt19937_64 random(1);
  const Checkpoint model = open_with([&](FileTensor& head) {
    const DType other = head.dtype == DType::kF32 ? DType::kBF16 : DType::kF32;
    head = random_tensor(head.name, other, head.shape, random, 0, 1);
  });
  EXPECT_FALSE(model.config().tied_head);
}

TEST_F(StoredHead, OfAnotherShapeIsRefusedByName) {
  EXPECT_NE(error_of([&] {
              open_with([](FileTensor& head) { head.shape.insert(head.shape.begin(), 1); });
            }).find("tensor 'lm_head.weight' has shape"),
            std::string::npos);
}

TEST_F(StoredHead, ThatIsEqualIsComparedOnce) {
  const auto same = [](FileTensor&) {};
  EXPECT_TRUE(open_with(same).config().tied_head);
  EXPECT_EQ(verdicts(), 1u);
  // Bytes that change under the same name and size are compared again.
  EXPECT_FALSE(open_with([](FileTensor& head) { head.bytes.back() ^= 1; }).config().tied_head);
}

TEST_F(StoredHead, VerdictsAreTakenFromTheCache) {
  open_with([](FileTensor&) {});
  const std::filesystem::path folder = dir_ / "cache" / "canopy";
  const auto kept = std::filesystem::directory_iterator(folder)->path();
  const auto written = std::filesystem::last_write_time(kept);
  std::filesystem::last_write_time(kept, written - std::chrono::hours(1));
  EXPECT_TRUE(Checkpoint::open(dir_ / "model").config().tied_head);
  EXPECT_EQ(std::filesystem::last_write_time(kept), written - std::chrono::hours(1));
}

TEST_F(StoredHead, WhereNothingCanBeKeptANoteSaysThatItIsComparedEachTime) {
  write_file(dir_ / "cache", "not a folder");
  const Checkpoint model = open_with([](FileTensor&) {});
  EXPECT_TRUE(model.config().tied_head);
  ASSERT_EQ(model.config().notes.size(), 1u);
  EXPECT_NE(model.config().notes[0].find("compared with the embedding at each start"),
            std::string::npos);
}

}  // namespace
}  // namespace canopy::testing
