#pragma once
// A draft that this file alone knows: it proposes what followed the last token when it stood in the
// text before. It says that it takes memory of both kinds and time, so that a plan can be seen to
// count them.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "src/speculation/draft_source.h"

namespace canopy::testing {

class LooksBack final : public Drafter {
 public:
  LooksBack(Device& device, int most_nodes)
      : memory_(device.allocate(kDeviceBytes)), most_nodes_(most_nodes) {}
  static constexpr std::size_t kDeviceBytes = 1 << 16, kHostBytes = 1 << 17;

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
  void conclude(DraftState&, const Draft&, const Verdict&, ConstTensorView, Stream&) override {}
  TreeRoom room() const override { return TreeRoom::of_nodes(most_nodes_); }

 private:
  Buffer memory_;
  int most_nodes_;
};

class LooksBackSource final : public DraftSource {
 public:
  std::string name() const override { return "look-back"; }
  Acceptance prior(double) const override { return {{0.7, 0.0}, {{0.8, 0.0}}}; }
  std::string prior_in_words() const override { return "assumed to be a toy's"; }
  Curve level_seconds() const override {
    return Curve::fit(std::array{Sample{0, Seconds(kLevel)}});
  }
  DraftNeeds needs(const DraftBounds&) const override {
    DraftNeeds needs;
    needs.host = {{"what it might find", LooksBack::kHostBytes}};
    needs.device = {{"a buffer", LooksBack::kDeviceBytes}};
    return needs;
  }
  std::unique_ptr<Drafter> make(Device& device, const DraftBounds& bounds) const override {
    return std::make_unique<LooksBack>(device, bounds.nodes);
  }
  static constexpr double kLevel = 1e-3;
};

/// The one registration.
inline void add_look_back() {
  add_draft_kind([](std::string_view text) -> std::shared_ptr<const DraftSource> {
    return text == "look-back" ? std::make_shared<LooksBackSource>() : nullptr;
  });
}

}  // namespace canopy::testing
