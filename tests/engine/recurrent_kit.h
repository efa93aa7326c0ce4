#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "tests/engine/session_kit.h"

namespace canopy {

/// A tiny model with recurrent layers, and a noisy copy of it as the draft.
class RecurrentEngine : public TinyEngine, public ::testing::WithParamInterface<const char*> {
 protected:
  static constexpr int kPrompt = 110, kContext = 270;

  void SetUp() override { write_noisy_copy(target(), draft(), 0.01f); }
  std::filesystem::path target() const { return test_data() / "model" / GetParam(); }
  std::filesystem::path draft() const { return own_ / "draft"; }

  EngineOptions options_for(SpeculationMethod method, int nodes, int sequences = 1) const {
    EngineOptions options = options_until(method, nodes, kPrompt, kContext);
    options.plan.max_sequences = sequences;
    return options;
  }
  ModelFiles files(bool with_draft) const {
    ModelFiles files{Checkpoint::open(target()), std::nullopt, nullptr};
    if (with_draft) files.draft = Checkpoint::open(draft());
    files.tokenizer = std::make_unique<NumberTokenizer>(97, std::vector<TokenId>{});
    return files;
  }
  Engine make(SpeculationMethod method, int nodes, int sequences = 1) const {
    return Engine(files(method != SpeculationMethod::kNone), options_for(method, nodes, sequences));
  }
  static Request asked(int number, int prompt = kPrompt, int tokens = kContext - kPrompt) {
    Request request;
    for (int i = 0; i < prompt; ++i)
      request.prompt.push_back((i * i + number * (i / 5 + 1)) % 89 + 3);
    request.max_new_tokens = tokens;
    request.ignore_end = true;
    return request;
  }
  std::vector<TokenId> plain(const Request& request) const {
    return make(SpeculationMethod::kNone, 0).generate(request).tokens;
  }

 private:
  const TempDir own_;
};

}  // namespace canopy
