#include "src/measure/decode.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/base/error.h"

namespace canopy {

StepTally tally_steps(const TextReport& text, Loops loops) {
  const std::vector<bool> in_loop = find_loops(text.tokens);
  StepTally tally;
  std::size_t at = 0;
  for (const int tokens : text.step_tokens) {
    if (loops == Loops::kWith || (at < in_loop.size() && !in_loop[at])) {
      tally.tokens += tokens;
      tally.steps += 1;
    }
    at += static_cast<std::size_t>(tokens);
  }
  return tally;
}

Estimate tokens_per_step(std::span<const StepTally> tallies) {
  StepTally sum;
  for (const StepTally& t : tallies) sum.tokens += t.tokens, sum.steps += t.steps;
  Estimate estimate{.groups = static_cast<int>(tallies.size())};
  if (sum.steps == 0) return estimate;
  estimate.mean = sum.tokens / sum.steps;
  double squares = 0;
  for (const StepTally& t : tallies) squares += std::pow(t.tokens - estimate.mean * t.steps, 2);
  const double n = estimate.groups;
  estimate.error = n > 1 ? std::sqrt(n / (n - 1) * squares) / sum.steps : 0;
  return estimate;
}

namespace {

/// Sums over texts.
struct Counts {
  double tokens = 0, steps = 0, checked = 0, drafted = 0, copied = 0;
  double gained = 0;  // drafted tokens that were accepted, also those after a text's end
  double logprobs = 0, told = 0, texts = 0;

  void add(const TextReport& text) {
    tokens += static_cast<double>(text.tokens.size());
    steps += text.steps;
    texts += 1;
    checked += text.checked_nodes;
    drafted += text.drafted_rows;
    copied += text.copied_steps;
    for (const int step : text.step_tokens) gained += step - 1;
    for (const TokenReport& token : text.logprobs) logprobs += token.chosen.logprob, told += 1;
  }
  void put_into(DecodeMeasurement& done) const {
    const auto share = [](double of, double all) { return all > 0 ? of / all : 0; };
    done.rows_per_token = share(checked + steps, tokens);
    done.draft_rows_per_token = share(drafted, tokens);
    done.drafted_share = share(gained, gained + steps);
    done.accepted_of_checked = share(gained, checked);
    done.copied_steps = share(copied, steps);
    done.drafted_per_text = share(drafted, texts);
    done.checked_per_text = share(checked, texts);
    if (told > 0) done.perplexity = std::exp(-logprobs / told);
  }
};

}  // namespace

DecodeMeasurement measure_decode(
    Engine& engine, std::span<const Request> requests,
    const std::function<void(std::size_t first, const StepProgress&)>& on_step,
    const std::stop_token& stop) {
  DecodeMeasurement done;
  std::vector<StepTally> outside;
  Counts counts;
  Seconds decode{};
  double steps = 0, bytes = 0;
  const auto together = static_cast<std::size_t>(engine.plan().max_sequences);
  for (std::size_t first = 0; first < requests.size(); first += together) {
    GenerateEvents events;
    events.on_step = [&](const StepProgress& step) {
      for (const CheckedTree& tree : step.trees) done.trees.add(tree);
      if (on_step) on_step(first, step);
    };
    const BatchReport report = engine.generate(
        requests.subspan(first, std::min(together, requests.size() - first)), events, stop);
    if (stop.stop_requested()) throw Stopped();
    for (const TextReport& text : report.texts) {
      counts.add(text);
      done.texts.push_back(text.tokens);
      done.tallies.push_back(tally_steps(text, Loops::kWith));
      outside.push_back(tally_steps(text, Loops::kWithout));
    }
    decode += report.decode;
    done.compute += report.compute;
    done.drafting += report.drafting;
    done.tokens += report.decode_tokens;
    done.joules += report.decode_energy;
    steps += report.sweeps - 1;
    bytes += static_cast<double>(report.link.disk_bytes);
  }
  counts.put_into(done);
  done.tokens_per_step = tokens_per_step(done.tallies);
  done.outside_loops = tokens_per_step(outside);
  steps = std::max(1.0, steps);
  const double tokens = std::max(1.0, done.tokens);
  done.seconds_per_token = decode.count() / tokens;
  done.bytes_per_token = bytes / tokens;
  done.step = decode / steps;
  done.compute /= steps;
  done.drafting /= steps;
  return done;
}

}  // namespace canopy
