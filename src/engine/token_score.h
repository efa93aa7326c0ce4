#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/log_of_sum.h"
#include "src/engine/session.h"
#include "src/speculation/verifier.h"

namespace canopy {

/// A row of logits on its way to a report: slices of the vocabulary come one after another, from
/// token 0 on. The report's bits do not depend on where they are cut.
class TokenScore {
 public:
  /// `count`: likeliest tokens to report, next to the chosen one.
  TokenScore(TokenId chosen, int count) : count_(static_cast<std::size_t>(count)) {
    report_.chosen.token = chosen;
  }

  void add(std::int64_t first_token, std::span<const float> logits) {
    sum_.add(logits);
    std::vector<TokenLogprob>& top = report_.top;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const auto token = static_cast<TokenId>(first_token + static_cast<std::int64_t>(i));
      if (token == report_.chosen.token) report_.chosen.logprob = logits[i];
      const bool enters = top.size() < count_ || (count_ > 0 && logits[i] > top.back().logprob);
      if (!enters) continue;
      if (top.size() == count_) top.pop_back();
      // After its equals: of these the lower ids are first.
      const auto place = std::find_if(top.begin(), top.end(), [&](const TokenLogprob& other) {
        return other.logprob < logits[i];
      });
      top.insert(place, {token, logits[i]});
    }
  }

  /// All slices were added. Throws NotFinite.
  TokenReport report() && {
    const double log_sum = sum_.value();
    if (std::isnan(log_sum)) throw NotFinite();
    report_.chosen.logprob -= log_sum;
    for (TokenLogprob& one : report_.top) one.logprob -= log_sum;
    return std::move(report_);
  }

 private:
  const std::size_t count_;
  LogOfSum sum_;
  TokenReport report_;  // logits until it is asked for
};

}  // namespace canopy
