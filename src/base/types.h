#pragma once
#include <chrono>
#include <cstdint>

namespace canopy {

using TokenId = std::int32_t;
using NodeId = std::int32_t;  // index into a TokenTree; 0 is the root
using Seconds = std::chrono::duration<double>;
using Clock = std::chrono::steady_clock;
inline Seconds since(Clock::time_point start) { return Clock::now() - start; }

/// The numbers by which tokens are drawn from logits, applied in this order: temperature, top-k,
/// top-p, min-p, typical-p. temperature 0 means greedy. Ops::probabilities defines each.
struct Sampling {
  float temperature = 0.0f;
  int top_k = 0;  // 0: all
  float top_p = 1.0f;
  float min_p = 0.0f;      // of the likeliest token's probability; 0: all
  float typical_p = 1.0f;  // 1: all
  bool operator==(const Sampling&) const = default;
};

/// Function that makes scores of a mixture's router: a softmax over all of its logits, or the
/// sigmoid of each.
enum class RouterScore : std::uint8_t { kSoftmax, kSigmoid };

/// The product that an MLP makes of a gate g and the value u that it lets through. kSwiglu: u g
/// sigmoid(g). kClamped: (u + 1) g sigmoid(alpha g), of g cut to at most `limit` and u to [-limit,
/// limit]. kGelu: u g (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3))) / 2.
enum class GatingKind : std::uint8_t { kSwiglu, kClamped, kGelu };
struct Gating {
  GatingKind kind = GatingKind::kSwiglu;
  float limit = 0.0f, alpha = 0.0f;  // kClamped
  bool operator==(const Gating&) const = default;
};

}  // namespace canopy
