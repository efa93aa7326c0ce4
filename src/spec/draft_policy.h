#pragma once
#include <memory>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "planner/tree_shape.h"
#include "src/model/transformer.h"
#include "src/spec/token_tree.h"

namespace canopy {

/// How siblings were drawn. The verifier's proof depends on it, so it travels with
/// the tree and the two are never chosen apart.
enum class Drawing { kTopK, kWithReplacement, kWithoutReplacement };

struct Draft {
  TokenTree tree;
  ConstTensorView q;                // [inner nodes, vocab] draft probabilities
  std::vector<std::int32_t> q_row;  // per node: its row in q, or -1 for a leaf
  std::vector<bool> evaluated;  // per node: its draft KV exists (a leaf may never have been run)
  Drawing drawing = Drawing::kTopK;
};

struct DraftRequest {
  std::span<const TokenId>
      pending;  // committed tokens that the draft has not run yet; the last one is the root
  KvCache* kv = nullptr;
  Sampling sampling;
  StepRng rng;
};

/// Grows a tree below the last committed token with the draft model.
class DraftPolicy {
 public:
  virtual ~DraftPolicy() = default;
  virtual std::string_view name() const = 0;
  /// One tree per request (several sequences share each level's forward).
  virtual std::vector<Draft> grow(Transformer& model, std::span<const DraftRequest> requests,
                                  Stream& compute, std::stop_token stop = {}) = 0;
};

std::unique_ptr<DraftPolicy> make_sequoia_policy(Device& device, TreeShape shape);
std::unique_ptr<DraftPolicy> make_chain_policy(Device& device, int length);  // the classic baseline

}  // namespace canopy
