// Bytes of weights that nobody wrote: in every container, and where the file system does not know.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/readers.h"
#include "tests/checkpoint/checkpoint_files.h"

namespace canopy::testing {
namespace {

constexpr off_t kBlock = 64 << 10;  // at least that of any file system

/// Makes the blocks inside [begin, end) of a file a hole, and says where one begins; nothing if the
/// file system has no holes.
std::optional<std::uint64_t> punch(const std::filesystem::path& file, std::uint64_t begin,
                                   std::uint64_t end) {
  const int descriptor = open(file.c_str(), O_RDWR | O_CLOEXEC);
  const off_t from = (static_cast<off_t>(begin) + kBlock - 1) / kBlock * kBlock;
  const off_t bytes = static_cast<off_t>(end) / kBlock * kBlock - from;
  EXPECT_GT(bytes, 0) << "the tensor is too small for the test";
  const bool done =
      fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, bytes) == 0 &&
      lseek(descriptor, from, SEEK_HOLE) == from;
  close(descriptor);
  return done ? std::optional(static_cast<std::uint64_t>(from)) : std::nullopt;
}

/// A model whose matrices are larger than blocks.
TinyModel large_model() {
  TinyOptions options;
  options.dim = 512;
  options.hidden_dim = 512;
  options.heads = 8;
  options.kv_heads = 8;
  options.head_dim = 64;
  return tiny_model(options);
}
constexpr const char* kName = "model.layers.1.mlp.up_proj.weight";

/// Punches a hole into that tensor, and expects it to be refused by name, and taken on request.
void expect_refused(const std::filesystem::path& model) {
  const Checkpoint whole = Checkpoint::open(model);
  const TensorEntry& tensor = *whole.find(kName);
  const auto file = whole.files().at(static_cast<std::size_t>(tensor.file));
  const auto at = punch(file, tensor.offset, tensor.offset + tensor.bytes);
  if (!at) GTEST_SKIP() << "the file system has no holes";
  const std::string error = error_of([&] { Checkpoint::open(model); });
  const std::string name = model.extension() == ".gguf" ? "blk.1.ffn_up.weight" : kName;
  for (const std::string& said :
       {"tensor '" + name + "' lies in a hole: bytes " + std::to_string(*at) + " to ",
        std::string("the download is not complete"), file.string()})
    EXPECT_NE(error.find(said), std::string::npos) << error;
  EXPECT_EQ(Checkpoint::open(model, Holes::kAllowed).tensors().size(), whole.tensors().size());
}

TEST(Holes, OfASafetensorsFileAreRefusedByTensor) {
  const TempDir dir;
  write_hugging_face(dir.path(), large_model());
  expect_refused(dir.path());
}

TEST(Holes, OfAShardAreRefusedByTensorAndFile) {
  const TempDir dir;
  write_hugging_face(dir.path(), large_model(), 3);
  expect_refused(dir.path());
}

TEST(Holes, OfAGgufFileAreRefusedByTensor) {
  const TempDir dir;
  write_file(dir / "model.gguf", gguf_writer(large_model()).bytes());
  expect_refused(dir / "model.gguf");
}

TEST(Holes, ThatEndAFileAreRefusedToo) {
  const TempDir dir;
  write_hugging_face(dir.path(), large_model());
  const auto file = dir / "model.safetensors";
  const auto bytes = std::filesystem::file_size(file);
  std::filesystem::resize_file(file, bytes - 2 * kBlock);
  std::filesystem::resize_file(file, bytes);
  if (!punch(file, bytes - 2 * kBlock, bytes)) GTEST_SKIP() << "the file system has no holes";
  EXPECT_NE(error_of([&] { Checkpoint::open(dir.path()); }).find("lies in a hole"),
            std::string::npos);
}

TEST(Holes, OutsideOfTensorsAreNoMatter) {
  const TempDir dir;
  const auto file = dir / "file";
  write_file(file, std::string(8 * kBlock, 'x'));
  if (!punch(file, kBlock, 3 * kBlock)) GTEST_SKIP() << "the file system has no holes";
  const auto refused = [&](std::uint64_t offset, std::uint64_t bytes, const char* name) {
    const std::vector<TensorEntry> tensors{{name, DType::kBF16, {1}, 0, offset, bytes}};
    return !error_of([&] { refuse_holes(file, tensors); }).empty();
  };
  EXPECT_FALSE(refused(0, kBlock, "before"));
  EXPECT_FALSE(refused(3 * kBlock, 5 * kBlock, "after"));
  EXPECT_FALSE(refused(2 * kBlock, 0, "empty"));
  EXPECT_FALSE(refused(kBlock, kBlock, "canopy.pad.0"));
  EXPECT_TRUE(refused(0, kBlock + 1, "its last byte"));
  EXPECT_TRUE(refused(3 * kBlock - 1, kBlock, "its first byte"));
}

TEST(Holes, ThatACopyFilledWithZerosAreNoted) {
  for (const std::size_t values_at : {std::size_t{0}, std::size_t{1}}) {
    TinyModel model = large_model();
    std::string& bytes = model.at(kName).bytes;
    const std::size_t kept = values_at * bytes.size() / 2;  // of half a matrix nothing is said
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(kept), bytes.end(), '\0');
    const TempDir dir;
    write_hugging_face(dir.path(), model);
    const Notes notes = Checkpoint::open(dir.path()).config().notes;
    ASSERT_EQ(notes.size(), values_at == 0 ? 1u : 0u);
    if (values_at == 0) {
      EXPECT_EQ(notes[0].find(std::string(kName) + " is zeros"), 0u) << notes[0];
    }
  }
}

}  // namespace
}  // namespace canopy::testing
