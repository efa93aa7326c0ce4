// Runs a fuzz target without libFuzzer: over the files and folders that are given, and over a few
// hundred changes of each file (--changes=N: their number) that depend on nothing but its bytes.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/mutation.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" __attribute__((weak)) std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data,
                                                                     std::size_t size,
                                                                     std::size_t most,
                                                                     unsigned seed);

namespace {

namespace fs = std::filesystem;
using canopy::fuzz::below;

canopy::fuzz::Random g_random;
constexpr std::size_t kMostInput = 1 << 18, kChangedBytes = 1'000'000;
constexpr std::size_t kMostChanges = 200;

std::vector<fs::path> files_of(int count, char** names) {
  std::vector<fs::path> files;
  for (int i = 0; i < count; ++i) {
    if (!fs::is_directory(names[i])) {
      files.emplace_back(names[i]);
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(names[i]))
      if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

std::string changed(std::string input, unsigned seed) {
  const std::size_t size = input.size();
  input.resize(std::min(size + 256, kMostInput));
  auto* const data = reinterpret_cast<std::uint8_t*>(input.data());
  input.resize(LLVMFuzzerCustomMutator != nullptr && seed % 2 == 0
                   ? LLVMFuzzerCustomMutator(data, size, input.size(), seed)
                   : LLVMFuzzerMutate(data, size, input.size()));
  return input;
}

}  // namespace

/// One to four bytes are set, turned, inserted or taken out.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most) {
  for (std::size_t changes = 1 + below(4, g_random); changes > 0; --changes) {
    const std::size_t at = size == 0 ? 0 : below(size, g_random);
    const auto byte = static_cast<std::uint8_t>(g_random() >> 8);
    switch (g_random() % 4) {
      case 0:
        if (size > 0) data[at] = byte;
        break;
      case 1:
        if (size > 0) data[at] = static_cast<std::uint8_t>(data[at] ^ 1u << byte % 8);
        break;
      case 2:
        if (size == most) break;
        std::memmove(data + at + 1, data + at, size - at);
        data[at] = byte;
        ++size;
        break;
      default:
        if (size == 0) break;
        std::memmove(data + at, data + at + 1, size - at - 1);
        --size;
    }
  }
  return size;
}

int main(int count, char** names) {
  constexpr std::string_view kChanges = "--changes=";
  std::size_t asked = 0;
  if (count > 1 && std::string_view(names[1]).starts_with(kChanges)) {
    asked = std::strtoull(names[1] + kChanges.size(), nullptr, 10);
    --count, ++names;
  }
  const std::vector<fs::path> files = files_of(count - 1, names + 1);
  if (files.empty()) {
    std::fprintf(stderr, "fuzz: there is nothing to replay\n");
    return 1;
  }
  std::size_t runs = 0;
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(in), {}};
    std::fprintf(stderr, "%s\n", file.c_str());  // the last one is that of a crash
    run(input);
    const std::size_t share = kChangedBytes / (files.size() * (input.size() + 100));
    const std::size_t changes = asked > 0 ? asked : std::min(share, kMostChanges);
    for (std::size_t i = 0; i < changes; ++i) {
      g_random.seed(static_cast<unsigned>(i + 1));
      run(changed(input, static_cast<unsigned>(i + 1)));
    }
    runs += 1 + changes;
  }
  std::printf("%zu files, %zu runs\n", files.size(), runs);
}
