// A run of `pack` that is cut, wherever: the next goes on after what it finished and gives the
// bytes of an uncut one, or says why it begins anew.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "src/convert/enlarge/inflate.h"
#include "src/convert/pack/pack.h"
#include "src/convert/pack/pack_journal.h"
#include "tests/convert/tiny_outputs.h"
#include "tests/error_of.h"
#include "tests/temp_dir.h"

namespace canopy::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPartial = "packed.canopy-partial";

/// The bytes of every file of a directory.
std::map<std::string, std::string> files_in(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const std::string& name : entries(directory)) files[name] = contents(directory / name);
  return files;
}

/// A source, and a directory to pack it in. "wide": BF16, of which some matrices are packed; else a
/// model of tests/data whose matrices become rows, with companions.
class PackResume : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("wide")) {
      inflate(tiny_model("llama2"),
              {.output = dir_ / "model", .small = own_ / "small", .bytes = 2'000'000, .seed = 3},
              kSilent);
    } else {
      fs::copy(fs::path(CANOPY_TEST_DATA) / "model" / GetParam(), dir_ / "model");
    }
    pack(source(), own_ / "packed", 2, kSilent);
    expected_ = files_in(own_ / "packed");
  }
  Checkpoint source() const {
    return Checkpoint::open(dir_ / "model", Holes::kRefused, Rows::kToBeMade);
  }
  /// Runs until `progress` has been called so often; false: it was done before.
  bool cut_at(int call) {
    notes_.clear();
    try {
      pack(
          source(), packed(), 2,
          [&](std::uint64_t, std::uint64_t) {
            if (--call == 0) throw Stopped();
          },
          note());
    } catch (const Stopped&) {
      return true;
    }
    return false;
  }
  /// A cut that leaves steps; as late as possible.
  void cut_late() {
    int calls = 0;
    pack(source(), own_ / "counted", 2, [&](std::uint64_t, std::uint64_t) { ++calls; });
    fs::remove_all(own_ / "counted");
    ASSERT_TRUE(cut_at(calls));
    ASSERT_GE(lines().size(), 4u) << "an identity and steps";
  }
  /// Goes on, and expects what an uncut run gives. Returns the bytes that were taken over.
  std::uint64_t go_on() {
    notes_.clear();
    const PackReport report = pack(source(), packed(), 3, kSilent, note());
    EXPECT_TRUE(files_in(packed()) == expected_);
    EXPECT_FALSE(fs::exists(partial()));
    EXPECT_EQ(notes_.size(), report.taken_bytes > 0 ? 1u : 0u);
    if (report.taken_bytes > 0) {
      EXPECT_NE(notes_[0].find(": " + std::to_string(report.taken_bytes) + " bytes"),
                std::string::npos)
          << notes_[0];
    }
    return report.taken_bytes;
  }
  /// Goes on, and expects that it begins anew and says why.
  void begins_anew(const std::string& why) {
    notes_.clear();
    EXPECT_EQ(pack(source(), packed(), 2, kSilent, note()).taken_bytes, 0u);
    ASSERT_EQ(notes_.size(), 1u);
    EXPECT_NE(notes_[0].find(why), std::string::npos) << notes_[0];
    EXPECT_NE(notes_[0].find("begins anew"), std::string::npos) << notes_[0];
    EXPECT_TRUE(files_in(packed()) == expected_);
  }
  PackNote note() {
    return [this](const std::string& text) { notes_.push_back(text); };
  }
  fs::path packed() const { return dir_ / "packed"; }
  fs::path partial() const { return dir_ / kPartial; }
  fs::path weights() const { return partial() / "model.safetensors"; }
  fs::path journal() const { return partial() / PackJournal::kName; }
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    std::ifstream in(journal());
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  /// The bytes that its first `steps` steps name, from the file's beginning.
  std::uint64_t end_of(std::size_t steps) const {
    const auto step = nlohmann::json::parse(lines().at(steps).substr(17));
    return step.at("at").get<std::uint64_t>() + step.at("bytes").get<std::uint64_t>();
  }
  static void write(const fs::path& file, const std::string& bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
  }

  const TempDir dir_, own_;
  std::map<std::string, std::string> expected_;
  std::vector<std::string> notes_;
};

TEST_P(PackResume, ACutAnywhereGivesTheBytesOfAnUncutRun) {
  std::set<std::uint64_t> taken;
  int call = 1;
  for (; cut_at(call); ++call) {
    SCOPED_TRACE(call);
    EXPECT_FALSE(fs::exists(packed()));
    EXPECT_EQ(fs::exists(partial()), notes_.size() == 1u) << "what is of use is left, and said";
    taken.insert(go_on());
    fs::remove_all(packed());
  }
  EXPECT_TRUE(taken.contains(0)) << "a cut before the first unit was finished";
  const int layers = source().config().layers;
  EXPECT_GT(taken.size(), static_cast<std::size_t>(layers + 1)) << "a layer is a step or more";
}

TEST_P(PackResume, SoDoesOneThatIsCutTimeAndAgain) {
  std::uint64_t had = 0, gains = 0;
  for (int call = 1; cut_at(call); ++call) {
    if (!fs::exists(partial())) continue;
    const std::uint64_t has = end_of(lines().size() - 1);
    EXPECT_GE(has, had) << "what was done is not lost, wherever the next run is cut";
    gains += has > had ? 1 : 0;
    had = has;
  }
  EXPECT_GT(gains, 2u);
  EXPECT_TRUE(files_in(packed()) == expected_);
}

TEST_P(PackResume, FilesThatTheSourceDoesNotHaveGo) {
  cut_late();
  write(partial() / "chat_template.jinja", "of before");
  fs::create_directory(partial() / "more");
  EXPECT_GT(go_on(), 0u);
}

TEST_P(PackResume, AJournalThatEndsAnywhereIsTakenUpToItsLastWholeLine) {
  cut_late();
  const auto left = files_in(partial());
  const std::string whole = left.at(std::string(PackJournal::kName));
  const std::size_t last = whole.rfind('\n', whole.size() - 2) + 1;
  const std::uint64_t before = end_of(lines().size() - 2);
  for (const std::size_t size :
       {last, last + 1, last + 17, (last + whole.size()) / 2, whole.size() - 2, whole.size() - 1}) {
    SCOPED_TRACE(size);
    fs::create_directory(partial());
    for (const auto& [name, bytes] : left) write(partial() / name, bytes);
    fs::resize_file(journal(), size);
    EXPECT_EQ(go_on(), before);
    fs::remove_all(packed());
  }
}

TEST_P(PackResume, ALineThatWasChangedEndsTheJournal) {
  cut_late();
  std::string text = contents(journal());
  const std::size_t second = text.find('\n', text.find('\n') + 1) + 1;
  const std::uint64_t first_step = end_of(1);
  text[second + 40] = text[second + 40] == '1' ? '2' : '1';
  write(journal(), text);
  EXPECT_EQ(go_on(), first_step);
}

TEST_P(PackResume, BytesThatAreNotWhatWasWrittenBeginAnew) {
  cut_late();
  const auto left = files_in(partial());
  const std::uint64_t first = nlohmann::json::parse(lines().at(1).substr(17)).at("at");
  const std::uint64_t end = end_of(lines().size() - 1);
  for (const std::uint64_t at : {first, end_of(1) - 1, end_of(1), (first + end) / 2, end - 1}) {
    SCOPED_TRACE(at);
    fs::create_directory(partial());
    for (const auto& [name, bytes] : left) write(partial() / name, bytes);
    std::string bytes = left.at("model.safetensors");
    bytes[at] ^= 4;
    write(weights(), bytes);
    begins_anew("damaged");
    fs::remove_all(packed());
  }
}

TEST_P(PackResume, AFileThatIsTooShortOrALinkBeginsAnew) {
  cut_late();
  const auto left = files_in(partial());
  fs::resize_file(weights(), end_of(lines().size() - 1) - 1);
  begins_anew("damaged");
  fs::remove_all(packed());
  fs::create_directory(partial());
  for (const auto& [name, bytes] : left) write(partial() / name, bytes);
  fs::rename(weights(), dir_ / "elsewhere");
  fs::create_symlink(dir_ / "elsewhere", weights());
  begins_anew("damaged");
  EXPECT_EQ(contents(dir_ / "elsewhere"), left.at("model.safetensors"));
}

TEST_P(PackResume, AnotherSourceBeginsAnew) {
  cut_late();
  const Checkpoint model = source();
  const TensorEntry& tensor = *model.find("model.layers.1.input_layernorm.weight");
  const fs::path file = model.files().at(static_cast<std::size_t>(tensor.file));
  std::string bytes = contents(file);
  bytes[tensor.offset + 1] ^= 1;  // no sample of the fingerprint's has it
  const auto time = fs::last_write_time(file);
  write(file, bytes);
  fs::last_write_time(file, time + std::chrono::milliseconds(1));
  pack(source(), own_ / "changed", 2, kSilent);
  ASSERT_FALSE(files_in(own_ / "changed") == expected_);
  expected_ = files_in(own_ / "changed");
  begins_anew("of another source");
}

TEST_P(PackResume, AnotherConfigBeginsAnew) {
  cut_late();
  std::ofstream(dir_ / "model/config.json", std::ios::app) << "\n";
  expected_["config.json"] = {};
  pack(source(), own_ / "changed", 2, kSilent);
  expected_ = files_in(own_ / "changed");
  begins_anew("of another source");
}

TEST_P(PackResume, AJournalOfAnotherVersionOrNoneOfOursBeginsAnew) {
  cut_late();
  const auto left = files_in(partial());
  std::string other = left.at(std::string(PackJournal::kName));
  other.replace(other.find("\"version\":\"") + 11, 1, "7");
  for (const std::string& text : {other, std::string("mine\n"), std::string("\n")}) {
    SCOPED_TRACE(text.substr(0, 60));
    fs::create_directory(partial());
    for (const auto& [name, bytes] : left) write(partial() / name, bytes);
    write(journal(), text);
    begins_anew("by another version");
    fs::remove_all(packed());
  }
}

// Leaves what a kill does before the first line is whole.
TEST_P(PackResume, ADirectoryWithoutAJournalIsReplaced) {
  for (const bool removed : {true, false}) {
    cut_late();
    if (removed)
      fs::remove(journal());
    else
      fs::resize_file(journal(), 30);
    EXPECT_EQ(go_on(), 0u);
    fs::remove_all(packed());
  }
}

TEST_P(PackResume, AJournalWithoutStepsIsReplacedByOneThatIsTaken) {
  cut_late();
  fs::resize_file(journal(), lines().at(0).size() + 1);
  cut_late();
  EXPECT_EQ(notes_.size(), 1u) << "what is left, and nothing of what was there";
  EXPECT_GT(go_on(), 0u);
}

// Leaves what a kill does between the last bytes and the name.
TEST_P(PackResume, ACompleteFileThatHasNoNameYetIsTakenUpToItsLastStep) {
  cut_late();
  const std::string steps = contents(journal());
  const std::uint64_t end = end_of(lines().size() - 1);
  go_on();
  fs::rename(packed(), partial());
  write(journal(), steps);
  EXPECT_EQ(go_on(), end);
}

TEST_P(PackResume, WhatAnotherRunWritesIsLeftAlone) {
  cut_late();
  const auto left = files_in(partial());
  const StagedOutput other(packed(), StagedOutput::Kind::kDirectory, 0,
                           StagedOutput::Existing::kRefused, StagedOutput::Leftover::kTaken);
  const std::string error = error_of([&] { pack(source(), packed(), 1, kSilent); });
  EXPECT_NE(error.find("being written by another run"), std::string::npos) << error;
  EXPECT_TRUE(files_in(partial()) == left);
}

TEST_P(PackResume, AFailureLeavesWhatWasDoneToo) {
  cut_late();
  const std::uint64_t end = end_of(lines().size() - 1);
  notes_.clear();
  EXPECT_NE(error_of([&] {
              pack(
                  source(), packed(), 1,
                  [](std::uint64_t, std::uint64_t) { throw Error("no more room"); }, note());
            }).find("no more room"),
            std::string::npos);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_NE(notes_[0].find("or remove it"), std::string::npos);
  EXPECT_EQ(go_on(), end);
}

INSTANTIATE_TEST_SUITE_P(Sources, PackResume, ::testing::Values("wide", "llama_order", "gpt_oss"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace canopy::test
