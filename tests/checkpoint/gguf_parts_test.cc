// GGUF models in parts: they open by the first one. Parts that do not fit are an error that names
// the file and what to do.
#include <gtest/gtest.h>

#include <cstdio>

#include "src/checkpoint/readers.h"
#include "tests/checkpoint/checkpoint_files.h"

namespace canopy::testing {
namespace {

constexpr std::uint32_t kU16 = 2;

std::string u16(int value) {
  std::string bytes;
  append(bytes, static_cast<std::uint16_t>(value));
  return bytes;
}
std::string part_name(int number, int count) {
  char text[40];
  std::snprintf(text, sizeof text, "m-%05d-of-%05d.gguf", number, count);
  return text;
}

/// A tiny model in parts, as it splits them: the first has all keys, tensors go in turn to each.
class GgufParts : public ::testing::Test {
 protected:
  static constexpr int kCount = 3;
  void SetUp() override {
    model_ = tiny_model();
    write_file(dir_ / "whole.gguf", gguf_writer(model_).bytes());
    const auto tensors = static_cast<std::int32_t>(model_.tensors.size());
    for (int part = 0; part < kCount; ++part) write_part(part, part, kCount, tensors);
  }
  /// Writes part `part` of the model, with these keys, to the file of that name.
  void write_part(int part, int number, int count, std::int32_t tensors) {
    TinyModel some = model_;
    some.tensors.clear();
    for (std::size_t i = static_cast<std::size_t>(part); i < model_.tensors.size(); i += kCount)
      some.tensors.push_back(model_.tensors[i]);
    GgufWriter writer = gguf_writer(some);
    if (part != 0) {  // the tensors alone
      GgufWriter bare;
      for (const FileTensor& tensor : tensors_of(some)) bare.tensor(tensor);
      writer = bare;
    }
    writer.raw("split.no", kU16, u16(number));
    writer.raw("split.count", kU16, u16(count));
    writer.i32("split.tensors.count", tensors);
    write_file(path(part), writer.bytes());
  }
  /// The tensors that gguf_writer() writes.
  static std::vector<FileTensor> tensors_of(const TinyModel& some) {
    std::vector<FileTensor> tensors;
    const TempDir dir;
    write_file(dir / "some.gguf", gguf_writer(some).bytes());
    const std::string bytes = read_file(dir / "some.gguf");
    for (const TensorEntry& entry : read_gguf(dir / "some.gguf").tensors)
      tensors.push_back({entry.name, entry.dtype, entry.shape,
                         bytes.substr(static_cast<std::size_t>(entry.offset),
                                      static_cast<std::size_t>(entry.bytes))});
    return tensors;
  }
  std::filesystem::path path(int part) const { return dir_ / part_name(part + 1, kCount); }
  std::string error(int part = 0) const {
    return error_of([&] { Checkpoint::open(path(part)); });
  }
  std::int32_t tensors() const { return static_cast<std::int32_t>(model_.tensors.size()); }
  TinyModel model_;
  TempDir dir_;
};

TEST_F(GgufParts, AreOneModelByTheFirst) {
  const Checkpoint whole = Checkpoint::open(dir_ / "whole.gguf"), parts = Checkpoint::open(path(0));
  ASSERT_EQ(parts.files(), (std::vector{path(0), path(1), path(2)}));
  ASSERT_EQ(parts.tensors().size(), whole.tensors().size());
  const auto bytes_of = [](const Checkpoint& model, const TensorEntry& tensor) {
    return read_file(model.files()[static_cast<std::size_t>(tensor.file)])
        .substr(static_cast<std::size_t>(tensor.offset), static_cast<std::size_t>(tensor.bytes));
  };
  for (const TensorEntry& tensor : whole.tensors()) {
    const TensorEntry* const found = parts.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_EQ(bytes_of(parts, *found), bytes_of(whole, tensor)) << tensor.name;
  }
}

TEST_F(GgufParts, OpenByTheFirstAlone) {
  EXPECT_TRUE(mentions(error(1), part_name(2, 3) + " is part 2 of 3 of a model"));
  EXPECT_TRUE(mentions(error(1), "give the first part, " + path(0).string()));
}

TEST_F(GgufParts, AreAllThere) {
  std::filesystem::remove(path(2));
  EXPECT_TRUE(mentions(error(), "part 3 of 3 of the model, " + path(2).string() + ", is missing"));
}

TEST_F(GgufParts, HaveTheNumbersThatTheirNamesSay) {
  for (const auto& [number, count] : {std::pair{1, 3}, {2, 4}}) {
    write_part(2, number, count, tensors());
    EXPECT_TRUE(mentions(error(), "reading " + path(2).string()));
    EXPECT_TRUE(mentions(error(), "but its name means part 3 of 3"));
  }
  write_file(path(2), gguf_writer(model_).bytes());
  EXPECT_TRUE(mentions(error(), "'split.no'"));
}

TEST_F(GgufParts, HoldAsManyTensorsAsTheFirstSays) {
  write_part(0, 0, kCount, tensors() + 1);
  EXPECT_TRUE(mentions(error(), "hold " + std::to_string(tensors()) +
                                    " tensors, but it speaks of " + std::to_string(tensors() + 1)));
  write_part(0, 0, kCount, -1);
  EXPECT_TRUE(mentions(error(), "'split.tensors.count' is -1"));
}

TEST_F(GgufParts, AreNoMoreThanTheLimit) {
  GgufWriter writer = gguf_writer(model_);
  writer.raw("split.no", kU16, u16(0));
  writer.i32("split.count", 65536);
  writer.i32("split.tensors.count", tensors());
  write_file(path(0), writer.bytes());
  EXPECT_TRUE(mentions(error(), "'split.count' is 65536, outside 0 to 65535"));
}

TEST_F(GgufParts, KeepTheirNames) {
  std::filesystem::copy(path(0), dir_ / "renamed.gguf");
  const std::string error = error_of([&] { Checkpoint::open(dir_ / "renamed.gguf"); });
  EXPECT_TRUE(mentions(error, "renamed.gguf is part 1 of 3 of a model, but is not named "));
  EXPECT_TRUE(mentions(error, "NAME-00001-of-00003.gguf"));
}

TEST_F(GgufParts, HaveNoTensorTwice) {
  GgufWriter writer;
  for (const FileTensor& tensor : tensors_of(model_))
    if (writer.tensor_count < 2) writer.tensor(tensor);
  writer.raw("split.no", kU16, u16(2));
  writer.raw("split.count", kU16, u16(3));
  write_file(path(2), writer.bytes());
  const auto third = (model_.tensors.size() + kCount - 3) / kCount;  // what part 3 had
  write_part(0, 0, kCount, tensors() - static_cast<std::int32_t>(third) + 2);
  EXPECT_TRUE(mentions(error(), "is given twice"));
}

}  // namespace
}  // namespace canopy::testing
