#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "src/speculation/growers/grower.h"
#include "src/speculation/growers/shape_grower.h"

namespace canopy {

/// Grows trees whose extent the draft's own probabilities decide, below the last committed tokens:
/// level by level, one forward of the draft model for the frontiers of all texts. Each level's
/// probabilities travel to the host, of valued trees only those of the best tokens; there a Grower
/// says what is run next. Levels differ from step to step, so they are launched kernel by kernel.
/// One thread at a time.
class FrontierGrower {
 public:
  /// A text's part of a step of drafting, as of ShapeGrower, with what grows its tree.
  struct Request {
    ShapeGrower::Request text;
    Grower* grower = nullptr;
  };

  /// `config`: its shape and room bound the trees and their levels.
  FrontierGrower(Device& device, const ShapeGrower::Config& config);
  /// Device bytes that one holds. Pure.
  static std::size_t device_bytes(const ShapeGrower::Config& config);
  static constexpr int kAllocations = 5 + RowEditor::kAllocations;

  /// Runs what is pending, then the levels. Draft::row is a node's scratch slot and its row of q.
  /// Waits for the stream once a level. Throws Error or Stopped with each KV cache as it was.
  std::vector<Draft> grow(Transformer& model, std::span<const Request> requests, Stream& stream,
                          const std::stop_token& stop);

 private:
  /// Nodes that the grower of one text asked for.
  struct Frontier {
    std::vector<DraftedNode> nodes;  // all that were run or are about to be
    std::vector<int> depth;
    int first = 0;  // of `nodes` that the next level runs
    bool done = false;
  };
  TensorView run_level(Transformer&, std::span<const Request>, std::span<const Frontier>, Stream&,
                       const std::stop_token&);
  void edit(std::span<const Request>, std::span<const Frontier>, TensorView logits, Stream&);
  /// Makes probabilities of a level's logits, brings them to the host and asks the growers.
  void judge(std::span<const Request>, std::span<Frontier>, ConstTensorView logits, Stream&);
  void ask(std::span<const Request>, std::span<Frontier>);
  /// The same of valued trees, whose rows stay where they are.
  void judge_best(std::span<const Request>, std::span<Frontier>, ConstTensorView logits, Stream&);
  /// Asks the grower of a text, whose rows these are, what is to run next.
  static void go_on(const Request&, Frontier&, std::span<const DraftedRow>);
  BestOfRows best_rows(std::int64_t first, std::int64_t count) const;
  TensorView q_of(std::size_t text, int row, int count) const;
  void probabilities(ConstTensorView logits, const Sampling&, TensorView to, Stream&);

  Device* device_;
  ShapeGrower::Config config_;
  std::size_t rows_of_text_;
  Buffer q_;       // [texts, rows of each, vocab]: all of a text's where its drawing uses q
  Buffer judged_;  // [rows of a level, vocab], where they are not those of q
  Buffer best_tokens_, best_probabilities_, entropies_;  // of a level of valued trees
  std::optional<RowEditor> row_editor_;
  std::vector<float> host_drawn_, host_judged_;
  std::vector<TokenId> host_tokens_;
  std::vector<float> host_probabilities_, host_entropies_;
};

}  // namespace canopy
