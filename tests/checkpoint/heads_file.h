#pragma once
// Writes small Medusa heads of random weights as safetensors.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/checkpoint/fingerprint.h"
#include "tests/checkpoint/checkpoint_files.h"

namespace canopy::testing {

struct HeadsOptions {
  int heads = 3, dim = 32, vocab = 0;  // vocab 0: without matrices
  int blocks = 1;
  bool bias = true;
  float deviation = 0.3f;  // of the blocks' values
  std::string prefix = "", source = "";
  std::vector<std::vector<float>> acceptance = {};
};

inline std::vector<FileTensor> heads_tensors(const HeadsOptions& o) {
  std::mt19937_64 random(7);
  std::vector<FileTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, float deviation) {
    tensors.push_back(
        random_tensor(o.prefix + name, DType::kF32, std::move(shape), random, 0.0f, deviation));
  };
  for (int head = 0; head < o.heads; ++head) {
    const std::string at = std::to_string(head) + ".";
    for (int block = 0; block < o.blocks; ++block) {
      const std::string linear = at + std::to_string(block) + ".linear.";
      add(linear + "weight", {o.dim, o.dim}, o.deviation);
      if (o.bias) add(linear + "bias", {o.dim}, o.deviation);
    }
    if (o.vocab > 0) add(at + std::to_string(o.blocks) + ".weight", {o.vocab, o.dim}, 1.0f);
  }
  if (!o.acceptance.empty()) {
    FileTensor shares{
        "acceptance", DType::kF32, {std::ssize(o.acceptance), std::ssize(o.acceptance[0])}, {}};
    for (const auto& row : o.acceptance)
      for (const float share : row) append(shares.bytes, share);
    tensors.push_back(std::move(shares));
  }
  return tensors;
}

inline std::filesystem::path write_heads_file(const std::filesystem::path& file,
                                              const std::vector<FileTensor>& tensors,
                                              const std::string& source = "") {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!source.empty())
    header["__metadata__"] = {{std::string(kSourceFingerprint), source}, {"format", "pt"}};
  std::string data;
  for (const FileTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  const std::string text = header.dump();
  std::string bytes;
  append(bytes, static_cast<std::uint64_t>(text.size()));
  write_file(file, bytes + text + data);
  return file;
}
inline std::filesystem::path write_heads_file(const std::filesystem::path& file,
                                              const HeadsOptions& options) {
  return write_heads_file(file, heads_tensors(options), options.source);
}

}  // namespace canopy::testing
