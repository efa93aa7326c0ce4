#pragma once
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "kernels/convert.h"
#include "src/engine/engine.h"
#include "tests/temp_dir.h"

namespace canopy {

/// Token 17 is "t17": enough for an engine that is given ids.
class NumberTokenizer final : public Tokenizer {
 public:
  NumberTokenizer(int vocab, std::vector<TokenId> ends) : ends_(std::move(ends)) {
    for (int i = 0; i < vocab; ++i) pieces_.push_back(std::string("t").append(std::to_string(i)));
  }
  std::vector<TokenId> encode(std::string_view, AddSpecial) const override { return {}; }
  std::string_view piece(TokenId token) const override {
    return pieces_[static_cast<std::size_t>(token)];
  }
  std::string decode(std::span<const TokenId>, AddSpecial) const override { return {}; }
  std::string_view token_string(TokenId token) const override { return piece(token); }
  bool is_special(TokenId) const override { return false; }
  bool ends_text(TokenId token) const override {
    return std::find(ends_.begin(), ends_.end(), token) != ends_.end();
  }
  int vocab() const override { return static_cast<int>(pieces_.size()); }

 private:
  std::vector<std::string> pieces_;
  std::vector<TokenId> ends_;
};

/// A copy of a checkpoint of one BF16 safetensors file whose weights are off by about `noise` each:
/// a draft that agrees with its target now and then.
inline std::filesystem::path write_noisy_copy(const std::filesystem::path& model,
                                              const std::filesystem::path& to, float noise) {
  std::filesystem::create_directories(to);
  std::filesystem::copy(model / "config.json", to / "config.json");
  std::ifstream in(model / "model.safetensors", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::mt19937 random(3);
  std::normal_distribution<float> normal(1.0f, noise);
  for (std::size_t at = 8 + header; at + 2 <= bytes.size(); at += 2) {
    std::uint16_t half = 0;
    std::memcpy(&half, bytes.data() + at, 2);
    half = bf16_from_f32(f32_from_bf16(half) * normal(random));
    std::memcpy(bytes.data() + at, &half, 2);
  }
  std::ofstream(to / "model.safetensors", std::ios::binary) << bytes;
  return to;
}

}  // namespace canopy
