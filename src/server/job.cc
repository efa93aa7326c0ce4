#include "src/server/job.h"

#include <algorithm>
#include <utility>

namespace canopy::server {

Job::Job(const JobRequest& request, const Tokenizer& tokenizer, Metrics& metrics)
    : metrics_(metrics),
      top_logprobs_(static_cast<std::size_t>(request.top_logprobs)),
      tokenizer_(tokenizer),
      deadline_(request.deadline),
      stop_tokens_(request.stop_tokens),
      late_(request.texts.size()),
      unfinished_(static_cast<int>(request.texts.size())) {
  for (const Request& text : request.texts) {
    shown_.emplace_back(tokenizer, request.stops, request.named, request.least_tokens);
    goes_on_.push_back(text.ignore_end);
  }
  pending_.choices.resize(shown_.size());
}

std::optional<JobUpdate> Job::take(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, patience, [&] { return published_; })) return std::nullopt;
  published_ = false;
  JobUpdate update = std::move(pending_);
  update.ended = unfinished_ == 0;
  pending_ = {};
  pending_.choices.resize(shown_.size());
  pending_.prompt_read = update.prompt_read;
  pending_.cached_tokens = update.cached_tokens;
  return update;
}

int Job::unfinished() const {
  const std::lock_guard lock(mutex_);
  return unfinished_;
}

RequestEvents Job::events_of(int choice) {
  const auto at = static_cast<std::size_t>(choice);
  const std::shared_ptr<Job> self = shared_from_this();  // a client may go at any time
  RequestEvents events;
  events.on_prompt = [this, self, at](std::span<const TokenId> prompt,
                                      std::span<const TokenReport> logprobs) {
    const std::lock_guard lock(mutex_);
    pending_.choices[at].prompt = {prompt.front(), {logprobs.begin(), logprobs.end()}};
  };
  events.on_token = [this, self, at](TokenId token, const TokenReport* logprobs) {
    const std::lock_guard lock(mutex_);
    JobUpdate::Choice& more = pending_.choices[at];
    const bool stops =
        std::find(stop_tokens_.begin(), stop_tokens_.end(), token) != stop_tokens_.end();
    if (!stops) more.text += shown_[at].push(token);
    more.tokens.push_back(token);
    more.ends.push_back(more.text.size());
    if (logprobs != nullptr) {
      std::vector<TokenLogprob>& top = more.logprobs.emplace_back(*logprobs).top;
      if (top.size() > top_logprobs_) top.resize(top_logprobs_);
    }
    const bool late = deadline_ && std::chrono::steady_clock::now() >= *deadline_;
    const bool stopped = stops || shown_[at].stopped();
    late_[at] = late && !stopped && (goes_on_[at] || !tokenizer_.ends_text(token));
    return !stopped && !late;
  };
  events.on_end = [this, self, at](const TextReport& report) {
    const std::lock_guard lock(mutex_);
    const std::string reason = late_[at] != 0 ? "length" : report.finish_reason;
    metrics_.ended(report, reason);
    JobUpdate::Choice& more = pending_.choices[at];
    more.text += shown_[at].end(reason != "stop");
    more.finish_reason = reason;
    more.stopping_word = shown_[at].stopping_word();
    more.sweeps = report.steps;
    more.drafted = report.checked_nodes;
    for (const int gained : report.step_tokens) more.accepted += std::max(0, gained - 1);
    more.first_sweep = report.step_ends.front();
    more.time = report.step_ends.back();
    more.cached_tokens = report.cached_tokens;
    more.known_tokens = report.known_tokens;
    --unfinished_;
    if (at > 0) return;
    pending_.prompt_read = report.prompt_read;
    pending_.cached_tokens = report.cached_tokens;
  };
  events.on_error = [this, self](const std::string& what) { fail(what); };
  return events;
}

void Job::tell_progress(const TextReport& first) {
  const std::lock_guard lock(mutex_);
  pending_.prompt_read = first.prompt_read;
  pending_.cached_tokens = first.cached_tokens;
}

void Job::fail(const std::string& what) {
  const std::lock_guard lock(mutex_);
  metrics_.ended_early("error", unfinished_);
  pending_.error = what;
  unfinished_ = 0;
}

void Job::publish() {
  {
    const std::lock_guard lock(mutex_);
    published_ = true;
  }
  changed_.notify_all();
}

}  // namespace canopy::server
