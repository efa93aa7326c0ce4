// A drafter that this file alone knows: it has no model and proposes what followed the last token
// when it stood in the text before. Nothing else was touched to add it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "src/engine/engine_parts.h"
#include "tests/engine/tiny_engine.h"

namespace canopy {
namespace {

class LooksBack final : public Drafter {
 public:
  explicit LooksBack(int most_nodes) : most_nodes_(most_nodes) {}

  std::unique_ptr<DraftState> open() override { return std::make_unique<DraftState>(); }

  std::vector<Draft> grow(std::span<const DraftRequest> requests, const TreeShape& shape, Stream&,
                          std::stop_token) override {
    std::vector<Draft> drafts;
    for (const DraftRequest& request : requests) {
      Draft draft = root_only(request.text.back());
      const auto last = request.text.rbegin();
      auto after = std::find(last + 1, request.text.rend(), *last).base();
      if (after == request.text.begin()) after = request.text.end();  // it is new
      NodeId node = 0;
      for (int level = 1; level < shape.levels() && after < request.text.end(); ++level, ++after) {
        node = draft.tree.add_children(node, {&*after, 1}).first;
        draft.row.push_back(-1);
      }
      drafts.push_back(std::move(draft));
    }
    return drafts;
  }
  void read(DraftState&, std::span<const TokenId>, Stream&, std::stop_token) override {}
  void conclude(DraftState&, const Draft&, const Verdict&, ConstTensorView, Stream&) override {}
  TreeRoom room() const override { return TreeRoom::of_nodes(most_nodes_); }

 private:
  int most_nodes_;
};

class ToyDrafter : public TinyEngine {};

TEST_F(ToyDrafter, WritesPlainDecodingsTextInFewerSweeps) {
  Engine plain = make(SpeculationMethod::kNone);
  Engine engine = make(SpeculationMethod::kChain, 6);
  engine.parts().set_drafter(std::make_unique<LooksBack>(6));
  int steps = 0, tokens = 0;
  for (unsigned p = 0; p < 6; ++p)
    for (const float temperature : {0.0f, 1.0f}) {
      Request r = request(prompt(p));
      r.sampling.temperature = temperature;
      r.seed = 3;
      r.reproducible = true;
      const TextReport text = engine.generate(r);
      EXPECT_EQ(text.tokens, plain.generate(r).tokens) << p << " at " << temperature;
      steps += text.steps;
      tokens += static_cast<int>(text.tokens.size());
    }
  EXPECT_LT(steps, tokens);
}

}  // namespace
}  // namespace canopy
