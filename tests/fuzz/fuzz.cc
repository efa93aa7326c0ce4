#include "tests/fuzz/fuzz.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <tuple>

#include "src/base/utf8.h"
#include "tests/fuzz/heap.h"
#include "tests/temp_dir.h"

namespace canopy::fuzz {

void expect(bool ok, std::string_view what) {
  if (ok) return;
  std::fprintf(stderr, "fuzz: expected %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

void expect_message(std::string_view message) {
  constexpr std::size_t kMostLine = 1000, kMostLines = 8;
  constexpr std::string_view kContext = "\n  while ";
  if (!is_utf8(message)) std::fprintf(stderr, "%s\n", in_quotes(message).c_str());
  expect(is_utf8(message), "a message in UTF-8");
  std::size_t lines = 0;
  while (!message.empty() && ++lines) {
    const std::size_t end = std::min(message.find(kContext), message.size());
    const std::string_view line = message.substr(0, end);
    const bool plain = std::none_of(line.begin(), line.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    });
    if (!plain || line.size() > kMostLine) std::fprintf(stderr, "%s\n", in_quotes(line).c_str());
    expect(plain, "a message without control characters");
    expect(line.size() <= kMostLine, "a message of bounded length");
    message.remove_prefix(std::min(message.size(), end + kContext.size()));
  }
  expect(lines > 0 && lines <= kMostLines, "a message of few lines");
}

const std::filesystem::path& folder() {
  static const TempDir dir(std::filesystem::is_directory("/dev/shm")
                               ? std::filesystem::path("/dev/shm")
                               : std::filesystem::temp_directory_path());
  return dir.path();
}

std::filesystem::path put(std::string_view name, std::string_view bytes) {
  const std::filesystem::path path = folder() / name;
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  expect(static_cast<bool>(out.flush()), "a folder that can be written to");
  return path;
}

void expect_consistent(const std::vector<TensorEntry>& tensors,
                       const std::vector<std::filesystem::path>& files) {
  std::vector<const TensorEntry*> sorted;
  for (const TensorEntry& tensor : tensors) {
    expect(tensor.file >= 0 && static_cast<std::size_t>(tensor.file) < files.size(),
           "a tensor in one of the files");
    const std::uint64_t size =
        std::filesystem::file_size(files[static_cast<std::size_t>(tensor.file)]);
    expect(tensor.offset <= size && tensor.bytes <= size - tensor.offset,
           "a tensor inside of its file");
    if (!tensor.foreign_dtype)
      expect(tensor.bytes == tensor_bytes(tensor), "a tensor of the size that its shape says");
    for (const std::int64_t extent : tensor.shape) expect(extent >= 0, "no negative extent");
    if (tensor.bytes > 0) sorted.push_back(&tensor);
  }
  std::sort(sorted.begin(), sorted.end(), [](const TensorEntry* a, const TensorEntry* b) {
    return std::tie(a->file, a->offset) < std::tie(b->file, b->offset);
  });
  for (std::size_t i = 1; i < sorted.size(); ++i)
    expect(sorted[i]->file != sorted[i - 1]->file ||
               sorted[i]->offset >= sorted[i - 1]->offset + sorted[i - 1]->bytes,
           "tensors that share no byte");
}

std::pair<std::string_view, std::string_view> split(std::string_view input) {
  const std::size_t at = std::min(input.find('\0'), input.size());
  return {input.substr(0, at), input.substr(std::min(at + 1, input.size()))};
}

}  // namespace canopy::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  canopy::fuzz::begin_to_count_heap();
  canopy::fuzz::fuzz_one({reinterpret_cast<const char*>(data), size});
  canopy::fuzz::expect(canopy::fuzz::most_heap_bytes() <= canopy::fuzz::kMostBytes,
                       "less than 64 MB of memory");
  return 0;
}
