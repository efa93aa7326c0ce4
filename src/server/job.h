#pragma once
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/engine/session.h"
#include "src/server/metrics.h"
#include "src/text/stop_strings.h"

namespace canopy::server {

/// Texts that one client asks for.
struct JobRequest {
  std::vector<Request> texts;  // its choices
  std::vector<std::string> stops;
  std::vector<TokenId> stop_tokens;  // end a text as the model's end tokens do
  int least_tokens = 0;              // of a text before a stop string counts
  std::optional<std::chrono::steady_clock::time_point> deadline;  // ends them at their next token
  int top_logprobs = 0;        // alternatives to report of each token, where logprobs are asked for
  std::vector<TokenId> named;  // special tokens that are shown by their names
};

/// A prompt with the log probabilities of its tokens, but of the first, which follows nothing.
struct ScoredPrompt {
  TokenId first = 0;
  std::vector<TokenReport> rest;
};

/// Update of a job: all that is new since it was last looked at.
struct JobUpdate {
  struct Choice {
    std::optional<ScoredPrompt> prompt;  // once it was read, if it is to be scored
    std::string reasoning;               // before the text, where a reader separates it
    std::string text;                    // whole characters, up to a stop string
    std::vector<TokenId> tokens;         // of the text, held back or not
    std::vector<std::size_t> ends;       // bytes of `text` up to the end of each token
    int reasoning_tokens = 0;            // before the text, where a reader separates it
    std::vector<TokenReport> logprobs;   // one per token, if asked for
    std::string finish_reason;           // "stop", "length"; "" while it goes on
    std::string stopping_word;           // the stop string that ended it, if one did
    int sweeps = 0;                      // this and the next three lines: when it has ended
    int drafted = 0, accepted = 0;       // tokens of its trees, and those of them it took
    Seconds first_sweep{}, time{};       // until the first token; in all
    int cached_tokens = 0;               // of its prompt
    int known_tokens = 0;                // TextReport::known_tokens
  };
  std::vector<Choice> choices;
  int prompt_read = 0, cached_tokens = 0;  // of the first choice's prompt, so far
  std::string error;                       // it ended all choices
  bool ended = false;                      // nothing more will come
};

/// A job on its way: the engine's thread adds to its update, the client's thread takes it.
class Job : public std::enable_shared_from_this<Job> {
 public:
  Job(const JobRequest& request, const Tokenizer& tokenizer, Metrics& metrics);

  /// Waits until something is new, for so long; nothing by then: nothing.
  std::optional<JobUpdate> take(std::chrono::milliseconds patience);
  int unfinished() const;  // choices

  // The engine's thread.
  RequestEvents events_of(int choice);
  void tell_progress(const TextReport& first);
  void fail(const std::string& what);
  /// Makes the update since the last call ready to be taken: once a sweep.
  void publish();

 private:
  friend class Scheduler;
  Metrics& metrics_;
  std::vector<Ticket> tickets_;  // the scheduler's, one for each choice
  const std::size_t top_logprobs_;
  const Tokenizer& tokenizer_;
  const std::optional<std::chrono::steady_clock::time_point> deadline_;
  const std::vector<TokenId> stop_tokens_;
  std::vector<ShownText> shown_;
  std::vector<char> late_;     // set if the deadline ended it, by choice
  std::vector<char> goes_on_;  // set if an end token does not end it, by choice
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  JobUpdate pending_;
  int unfinished_;
  bool published_ = false;
};

}  // namespace canopy::server
