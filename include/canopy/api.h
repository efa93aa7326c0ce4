#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "budget_error.h"
#include "error.h"

// The names that <canopy/canopy.h> offers as canopy::Model and so on. Failures throw canopy::Error;
// its message has what failed, where, and the remedy.

namespace canopy {
#pragma GCC visibility push(default)
namespace api {

using TokenId = std::int32_t;

const char* version();  // "0.1.0"
/// The bytes that "4G", "512M", "1.5GiB" or "1048576" are; K, M, G and T are powers of 1024. Throws
/// Error for what is no size, and for a budget whose unit was forgotten ("4").
std::uint64_t parse_size(std::string_view text);

/// Models to open, and what they may take.
struct Options {
  std::filesystem::path model;  // a Hugging Face directory or a GGUF file
  /// A smaller model with the same vocabulary, which guesses ahead; the text stays the model's own.
  std::filesystem::path draft = {};
  /// The method of guessing: "auto" takes what is predicted to be the fastest; else "none",
  /// "chain", "adaptive", "sequoia", "calibrated", "specinfer", "spectr", "naive", "topk", "gsd",
  /// "gsd-sequoia", "tsd", "ssd" or, without a draft, "self-ssd". All are exact; what the command
  /// has beyond them is refused.
  std::string method = "auto";
  /// Nodes of the tree that each text has checked in a sweep; 0: as many as are predicted to be
  /// best, and more or fewer as the text goes. "specinfer", "spectr" and "naive" take 0 alone.
  int tree_nodes = 0;
  std::string device = "auto";   // "auto" (a GPU, if there is one), "cpu", "cuda" or "cuda:N"
  std::uint64_t memory = 0;      // bytes for the whole process; 0: 80 % of what is free
  std::uint64_t gpu_memory = 0;  // bytes of a GPU; 0: all that is free
  int threads = 0;               // that compute; 0: one per physical core
  std::vector<int> cpus = {};    // that they run on; empty: all that the process may use
  /// Bytes of weights that stay where they are computed with. Without a value as many as fit.
  std::optional<std::uint64_t> resident_bytes = {};
  /// Most tokens of a text, its prompt included. 0: 2048, or what the model was made for if that
  /// is less, and less still where memory is short.
  int context = 0;
  int sequences = 1;  // most texts that share a sweep; the plan may have room for fewer
  /// Bytes for the keys and values of all texts; 0: as many as let one text be full, next to short
  /// ones.
  std::uint64_t kv_memory = 0;
  double temperature = 0;  // that the plan is made for; a request may have another
  /// The file that `canopy calibrate hardware -o FILE` wrote. Without one, the measurements that
  /// the user's cache keeps of these models on this machine; where it keeps none, open() measures,
  /// once, about ten seconds; after a stop request the next call goes on from there.
  std::filesystem::path profile = {};
  /// True if the draft's share of right guesses is kept in the user's cache, and changes later
  /// plans.
  bool learn = true;
};

/// A line of the plan: what takes memory, and how much.
struct LedgerLine {
  std::string what;
  std::uint64_t bytes = 0;
};

/// The method, the use of the memory, and the speed that is predicted for them.
struct Plan {
  std::string method;                  // as in Options, chosen
  int tree_nodes = 1;                  // checked in a sweep for each text; 1: plain decoding
  int sequences = 1;                   // texts that can share a sweep
  int context = 0;                     // tokens of a text, its prompt included
  std::uint64_t memory_bytes = 0;      // the budget of the process
  std::uint64_t planned_bytes = 0;     // the part of it that is taken
  std::uint64_t gpu_memory_bytes = 0;  // the same of a GPU; 0 without one
  std::uint64_t gpu_planned_bytes = 0;
  std::uint64_t resident_bytes = 0;  // weights of the model that stay where they are computed with
  std::uint64_t read_bytes = 0;      // weights that are read from disk in every sweep
  double predicted_tokens_per_sweep = 0;  // of all texts together
  double predicted_seconds_per_token = 0;
  /// All that makes up planned_bytes and gpu_planned_bytes. The first has a line for what the
  /// process held when the plan was made.
  std::vector<LedgerLine> ledger, gpu_ledger;
};

/// Functions that Model::open() calls while it works, on the thread that calls it.
struct OpenEvents {
  std::function<void(std::string_view what)> on_measure = {};  // is about to be measured
  std::function<void(std::uint64_t done, std::uint64_t all)> on_load = {};  // bytes of weights
};

/// A conversation for the model's own chat template. Its parts are JSON, as `apply_chat_template`
/// of transformers takes them.
struct Conversation {
  std::string messages;        // a list of {"role", "content", ...}
  std::string tools = {};      // a list of JSON schemas; empty: none
  std::string variables = {};  // an object with more that the template may ask for; empty: none
};

/// A model, its draft and the plan, ready to run. A handle: copies are the same model. Its const
/// functions may be called from any thread, but for notes().
class Model {
 public:
  /// Opens, measures where that is needed, plans, and loads what is to stay in memory. Throws
  /// Error if a model is refused, BudgetError if the budget is too small; Stopped on request.
  static Model open(const Options& options, const OpenEvents& events = {},
                    std::stop_token stop = {});

  const Plan& plan() const;
  std::string device() const;              // its name
  std::vector<std::string> notes() const;  // each fallback taken, in words; between sweeps
  /// The tokens of a prompt: with those that the model's template begins or ends a text with.
  std::vector<TokenId> tokenize(std::string_view text) const;
  /// The tokens of a conversation, up to where the model's answer begins. What its messages say is
  /// text: special tokens come from the template alone. Throws Error if the model has no template,
  /// or if that, or a part of the conversation, cannot be used.
  std::vector<TokenId> tokenize(const Conversation& conversation) const;
  /// Always UTF-8: malformed bytes become U+FFFD. Special tokens have no text. Throws Error for
  /// an id outside the vocabulary.
  std::string detokenize(std::span<const TokenId> tokens) const;

 private:
  friend class Session;
  struct Impl;
  explicit Model(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

/// A text that is asked for.
struct Request {
  std::string prompt = {};
  std::vector<TokenId> tokens = {};  // the prompt, where it is not given as text
  int max_new_tokens = 128;  // fewer where the context is full; 0: the prompt is scored, no more
  float temperature = 0;     // 0 takes the likeliest token
  int top_k = 0;             // keep the K likeliest; 0: all
  float top_p = 1;           // then keep the likeliest that make up P of the probability
  float min_p = 0;           // then those of at least P times the likeliest's
  float typical_p = 1;       // then the most typical that make up P
  /// Before all that, of each token: a logit above 0 is divided by the first, any other multiplied,
  /// if the token stands in the prompt or the text; the others are taken off if it stands in the
  /// text, once, or as often as it does.
  float repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  std::vector<std::pair<TokenId, float>> logit_bias = {};  // added; minus infinity: never taken
  std::vector<std::string> stop = {};                      // the text ends before the first of them
  /// With a seed the text is the one that plain sampling has for it, whatever the draft, the plan
  /// and the other texts are; that takes more sweeps. Without one each text is another.
  std::optional<std::uint64_t> seed = {};
  bool ignore_end = false;  // go on past the model's end tokens
  int logprobs = 0;         // likeliest tokens to report with each; 0: no log probabilities
  /// Likeliest tokens to report with each of the prompt's tokens but the first, which are scored
  /// then. Without a value they are not.
  std::optional<int> prompt_logprobs = {};
};

struct TokenLogprob {
  TokenId token = 0;
  double logprob = 0;  // natural log, of the model's distribution before penalties, bias and cuts
};
/// A token of the text and the likeliest ones in its place, best first.
struct TokenLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
};

/// A generated text, without its prompt.
struct Text {
  std::string text;
  std::vector<TokenId> tokens;          // a stop string's own are the last
  std::vector<TokenLogprobs> logprobs;  // of each token, where asked for
  /// Log probabilities of each token of the prompt but the first, where asked for.
  std::vector<TokenLogprobs> prompt_logprobs;
  int cached_tokens = 0;                 // of the prompt that need not be read: others began so
  std::string finish_reason;             // "stop": the model or a stop string ended it; "length"
  int sweeps = 0;                        // over the model that gained tokens for it
  std::chrono::duration<double> time{};  // since it was admitted
};

/// Functions that report a request, on the thread that calls step(). One of the last two ends it.
struct Events {
  std::function<void(std::string_view piece)> on_text = {};  // the next whole UTF-8 characters
  std::function<void(const Text&)> on_end = {};
  std::function<void(const std::string& what)> on_error = {};
};

using Ticket = std::uint64_t;

/// Texts that share the sweeps over a model. They come and go between sweeps, in the order in
/// which they are admitted. At temperature 0 each is token for token what plain decoding writes;
/// at any other it is distributed as the model's own. (On a GPU the first holds but for ties that
/// rounding turns.)
///
/// One thread calls step() or run(); admit() and cancel() may be called from any, also from
/// events. Events must not throw.
class Session {
 public:
  /// Throws Error if the model has a session already.
  explicit Session(const Model& model);
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  /// Throws Error if the request can never fit the plan, or is none.
  Ticket admit(const Request& request, Events events = {});
  /// Ends a request: nothing more is reported of it.
  void cancel(Ticket ticket);

  /// Makes one sweep over the model for all that are admitted. Returns false if there was nothing
  /// to do, or a stop was asked for; then nothing of that sweep is kept, and step() may be called
  /// again. Throws Error where a read or the device fails: all requests got on_error, and the
  /// session is over.
  bool step(std::stop_token stop = {});
  /// Steps until there is nothing left to do, or a stop is asked for.
  void run(std::stop_token stop = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace api
#pragma GCC visibility pop
}  // namespace canopy
