#pragma once
#include <filesystem>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "offload/streamer.h"
#include "src/base/file.h"
#include "src/convert/output.h"
#include "src/model/transformer.h"
#include "tests/checkpoint/tiny_checkpoint.h"

namespace canopy::test {

inline const Progress kSilent = [](std::uint64_t, std::uint64_t) {};

/// A tiny random model of tests/data/model: a directory or a .gguf file.
inline Checkpoint tiny_model(const std::string& name) {
  return Checkpoint::open(std::filesystem::path(CANOPY_TEST_DATA) / "model" / name);
}

inline std::string contents(const std::filesystem::path& file) {
  return read_file(file, std::filesystem::file_size(file), FileKind::kOfModel);
}

/// Logits of the rows `wanted` of a text, on the CPU.
inline std::vector<float> logits_of(Device& device, const ModelConfig& config,
                                    WeightSource& weights, const std::vector<TokenId>& tokens,
                                    const std::vector<std::int32_t>& wanted) {
  const auto count = static_cast<int>(tokens.size());
  const auto compute = device.make_stream("compute");
  KvCache kv(device, config, count, {});
  Transformer model(device, config, weights,
                    {.max_nodes = count, .max_logit_rows = count, .max_context = count});
  std::vector<std::int32_t> position(tokens.size());
  std::iota(position.begin(), position.end(), 0);
  const SequenceRows part{{tokens, position, {}, 0, wanted}, &kv};
  const ConstTensorView logits = model.forward({&part, 1}, *compute);
  std::vector<float> out(logits.bytes() / sizeof(float));
  device.download(*compute, std::as_writable_bytes(std::span(out)), logits.data());
  compute->synchronize();
  return out;
}
/// Logits of every position of a fixed text.
inline std::vector<float> logits_of(Device& device, const ModelConfig& config,
                                    WeightSource& weights) {
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> rows;
  for (int i = 0; i < 19; ++i) tokens.push_back(i * 31 % config.vocab), rows.push_back(i);
  return logits_of(device, config, weights, tokens, rows);
}
inline std::vector<float> logits_of(const Checkpoint& checkpoint,
                                    const std::vector<TokenId>& tokens,
                                    const std::vector<std::int32_t>& rows) {
  const auto device = make_device({});
  Notes notes;
  const auto weights = load_resident(*device, lay_out_sweep(checkpoint), {notes});
  return logits_of(*device, checkpoint.config(), *weights, tokens, rows);
}
/// All weights resident.
inline std::vector<float> logits_of(const Checkpoint& checkpoint, const ModelConfig& config) {
  const auto device = make_device({});
  Notes notes;
  const auto weights = load_resident(*device, lay_out_sweep(checkpoint), {notes});
  return logits_of(*device, config, *weights);
}
inline std::vector<float> logits_of(const Checkpoint& checkpoint) {
  return logits_of(checkpoint, checkpoint.config());
}
/// All weights streamed.
inline std::vector<float> streamed_logits_of(const Checkpoint& checkpoint) {
  const auto device = make_device({});
  const SweepLayout sweep = lay_out_sweep(checkpoint);
  const Residency none = none_resident(sweep);
  Streamer streamer(*device, sweep, none, {.ring_bytes = least_ring(sweep, none)});
  return logits_of(*device, checkpoint.config(), streamer);
}

/// Everything that lies in a directory.
inline std::vector<std::string> entries(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  return names;
}

}  // namespace canopy::test
