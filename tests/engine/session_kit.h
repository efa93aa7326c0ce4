#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/engine/session.h"
#include "tests/engine/tiny_engine.h"

namespace canopy {

/// The events that a request was given.
struct Received {
  std::vector<TokenId> tokens;
  int ends = 0, stop_after = 0;
  std::string finish_reason, error;

  RequestEvents events() {
    RequestEvents e;
    e.on_token = [this](TokenId token, const TokenReport*) {
      tokens.push_back(token);
      return std::ssize(tokens) != stop_after;
    };
    e.on_end = [this](const TextReport& report) {
      ++ends;
      finish_reason = report.finish_reason;
      EXPECT_EQ(report.tokens, tokens);
    };
    e.on_error = [this](const std::string& what) {
      ++ends;
      error = what;
    };
    return e;
  }
};

class SessionTest : public TinyEngine {
 protected:
  static Engine make(SpeculationMethod method, double temperature, int sequences,
                     bool streamed = false) {
    EngineOptions o = options(method, 16, method == SpeculationMethod::kChain ? 0 : 5, temperature);
    if (method == SpeculationMethod::kNone) o.plan.tree_size = 0;
    if (streamed) o.plan.resident = 0;
    o.plan.max_sequences = sequences;
    return Engine(models_for(method), o);
  }
  static Request sampled(unsigned number, float temperature, bool reproducible) {
    Request r = request(prompt(number));
    r.sampling.temperature = temperature;
    r.seed = 11;
    r.sequence = number;
    r.reproducible = reproducible;
    return r;
  }
  static void run(Session& session) {
    while (session.step()) {
    }
  }
};

}  // namespace canopy
