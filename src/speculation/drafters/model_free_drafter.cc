#include "src/speculation/drafters/model_free_drafter.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_map>
#include <utility>

#include "src/base/error.h"

namespace canopy {

namespace {

using Kind = ModelFreeDraft::Kind;

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

std::span<const TokenId> corpus_of(const ModelFreeDraft& draft) {
  return draft.corpus ? std::span<const TokenId>(*draft.corpus) : std::span<const TokenId>();
}

bool contains(std::span<const TokenId> tokens, TokenId token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

/// Counts the tokens before tokens[end] that are those that end the path; at most kLongestMatch.
int length_of_match(std::span<const TokenId> tokens, std::size_t end,
                    std::span<const TokenId> path) {
  const std::size_t most = std::min({end, path.size(), std::size_t{ModelFreeDraft::kLongestMatch}});
  std::size_t length = 0;
  while (length < most && tokens[end - 1 - length] == path[path.size() - 1 - length]) ++length;
  return static_cast<int>(length);
}

}  // namespace

std::optional<ModelFreeDraft> model_free_draft_named(std::string_view text) {
  if (text == "random") return ModelFreeDraft{Kind::kRandom, 0, nullptr};
  if (text == "copy") return ModelFreeDraft{Kind::kCopy, ModelFreeDraft::kLeastMatch, nullptr};
  const std::string_view word = text.substr(0, text.find(':'));
  const bool copies = word == "copy";
  if (word.size() == text.size() || (!copies && word != "ngram")) return std::nullopt;
  const int most = copies ? ModelFreeDraft::kLongestMatch : ModelFreeDraft::kMostNgram;
  const std::string_view digits = text.substr(word.size() + 1);
  int length = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), length);
  if (error != std::errc() || end != digits.data() + digits.size() || length < 1 || length > most)
    throw Error("'" + std::string(text) + "': " + std::string(word) +
                ": takes a length from 1 to " + std::to_string(most));
  return ModelFreeDraft{copies ? Kind::kCopy : Kind::kNgram, length, nullptr};
}

std::string name(const ModelFreeDraft& draft) {
  if (draft.kind == Kind::kRandom) return "random";
  return (draft.kind == Kind::kCopy ? "copy:" : "ngram:") + std::to_string(draft.length);
}

Acceptance typical_acceptance(const ModelFreeDraft& draft, double temperature) {
  // Measured for this project on SmolLM2-135M-Instruct, 40 continuations of 96 tokens of the
  // default prompts at temperature 0 and .6: canopy calibrate acceptance -md copy --examples 40 -n
  // 96. Small models repeat themselves: there is less to learn from larger ones, while they write.
  const bool greedy = temperature == 0;
  switch (draft.kind) {
    case Kind::kCopy:
      if (greedy)
        return {{0.657, 0.015, 0.003, 0.0, 0.0, 0.0},
                {{0.931, 0.016, 0.004, 0.0, 0.0, 0.0},
                 {0.948, 0.013, 0.004, 0.0, 0.0, 0.0},
                 {0.958, 0.011, 0.004, 0.0, 0.0, 0.0},
                 {0.962, 0.012, 0.004, 0.0, 0.0, 0.0}}};
      return {{0.301, 0.018, 0.002, 0.001, 0.0, 0.0},
              {{0.739, 0.042, 0.006, 0.001, 0.0, 0.0},
               {0.797, 0.036, 0.006, 0.001, 0.0, 0.0},
               {0.834, 0.031, 0.005, 0.001, 0.0, 0.0},
               {0.854, 0.027, 0.003, 0.0, 0.0, 0.0}}};
    case Kind::kNgram:
      if (draft.length == 1 && greedy)
        return {{0.086, 0.071, 0.059, 0.068, 0.073, 0.058},
                {{0.091, 0.073, 0.061, 0.071, 0.077, 0.062},
                 {0.092, 0.078, 0.061, 0.075, 0.083, 0.068},
                 {0.097, 0.084, 0.065, 0.08, 0.089, 0.072},
                 {0.101, 0.086, 0.067, 0.083, 0.091, 0.073}}};
      if (draft.length == 1)
        return {{0.068, 0.054, 0.05, 0.048, 0.036, 0.034},
                {{0.076, 0.047, 0.047, 0.044, 0.041, 0.035},
                 {0.075, 0.048, 0.049, 0.054, 0.046, 0.039},
                 {0.09, 0.055, 0.047, 0.06, 0.049, 0.043},
                 {0.096, 0.058, 0.047, 0.061, 0.049, 0.046}}};
      if (greedy)
        return {{0.597, 0.116, 0.04, 0.023, 0.018, 0.01},
                {{0.67, 0.126, 0.038, 0.02, 0.012, 0.005},
                 {0.711, 0.124, 0.036, 0.018, 0.01, 0.004},
                 {0.74, 0.123, 0.034, 0.017, 0.008, 0.005},
                 {0.756, 0.123, 0.033, 0.016, 0.008, 0.005}}};
      return {{0.296, 0.109, 0.058, 0.035, 0.028, 0.022},
              {{0.376, 0.128, 0.056, 0.031, 0.023, 0.018},
               {0.43, 0.127, 0.053, 0.029, 0.022, 0.018},
               {0.474, 0.134, 0.057, 0.032, 0.02, 0.015},
               {0.509, 0.141, 0.056, 0.032, 0.018, 0.013}}};
    default: {
      // One token of a vocabulary of tens of thousands.
      constexpr double kOne = 2e-5;
      return {{kOne, kOne, kOne, kOne, kOne, kOne}};
    }
  }
}

namespace {

class ModelFreeSource final : public DraftSource {
 public:
  explicit ModelFreeSource(ModelFreeDraft draft) : draft_(std::move(draft)) {}

  std::string name() const override { return canopy::name(draft_); }
  Acceptance prior(double temperature) const override {
    return typical_acceptance(draft_, temperature);
  }
  std::string prior_in_words() const override {
    return "assumed to be what " + name() + " often has";
  }
  DraftNeeds needs(const DraftBounds& bounds) const override {
    DraftNeeds needs;
    needs.host = {{"what it counts and finds",
                   ModelFreeDrafter::host_bytes(draft_, bounds.vocab, bounds.slots)}};
    return needs;
  }
  std::unique_ptr<Drafter> make(Device&, const DraftBounds& bounds) const override {
    return std::make_unique<ModelFreeDrafter>(draft_, bounds.vocab, bounds.nodes);
  }
  std::shared_ptr<const DraftSource> with_corpus(std::vector<TokenId> tokens) const override {
    if (draft_.kind == Kind::kRandom) return nullptr;
    ModelFreeDraft with = draft_;
    with.corpus = std::make_shared<const std::vector<TokenId>>(std::move(tokens));
    return std::make_shared<ModelFreeSource>(std::move(with));
  }

 private:
  const ModelFreeDraft draft_;
};

}  // namespace

std::shared_ptr<const DraftSource> parse_model_free_draft(std::string_view text) {
  auto draft = model_free_draft_named(text);
  return draft ? std::make_shared<ModelFreeSource>(std::move(*draft)) : nullptr;
}

ModelFreeDrafter::ModelFreeDrafter(ModelFreeDraft draft, int vocab, int nodes)
    : draft_(std::move(draft)), vocab_(vocab), nodes_(nodes) {
  const std::span<const TokenId> corpus = corpus_of(draft_);
  begin_.assign(at(vocab) + 1, 0);
  for (const TokenId token : corpus) {
    require(token >= 0 && token < vocab, "draft: the corpus has tokens that the model has not");
    ++begin_[at(token) + 1];
  }
  if (draft_.kind == Kind::kNgram) {
    corpus_counts_.assign(begin_.begin() + 1, begin_.end());
    counts_.resize(at(vocab));
    by_count_.reserve(at(vocab));
  }
  for (std::size_t t = 0; t < at(vocab); ++t) begin_[t + 1] += begin_[t];
  places_.resize(corpus.size());
  std::vector<std::int32_t> next(begin_.begin(), begin_.end() - 1);
  for (std::size_t i = 0; i < corpus.size(); ++i)
    places_[at(next[at(corpus[i])]++)] = static_cast<std::int32_t>(i);
}

std::size_t ModelFreeDrafter::host_bytes(const ModelFreeDraft& draft, int vocab, int context) {
  const std::size_t counted = draft.kind == Kind::kNgram ? 3 : 0;
  // A path, and what was found of it: a match in each place at most, with its length and its token.
  const std::size_t of_text = at(context) * 4 * sizeof(std::int32_t);
  return ((1 + counted) * (at(vocab) + 1) + corpus_of(draft).size()) * sizeof(std::int32_t) +
         of_text;
}

std::vector<Draft> ModelFreeDrafter::grow(std::span<const DraftRequest> requests,
                                          const TreeShape& shape, Stream&, std::stop_token stop) {
  require(has_room(shape, static_cast<int>(requests.size())),
          "draft: room was made for fewer trees of this size");
  std::vector<Draft> drafts;
  for (const DraftRequest& request : requests) {
    if (stop.stop_requested()) throw Stopped();
    drafts.push_back(grow_one(request, shape));
  }
  return drafts;
}

Draft ModelFreeDrafter::grow_one(const DraftRequest& request, const TreeShape& shape) {
  Draft draft = root_only(request.text.back());
  if (draft_.kind == Kind::kNgram) count_text(request.text);
  std::vector<NodeId> grown(at(shape.size()), -1);  // the shape's nodes, in the tree
  grown[0] = 0;
  std::vector<TokenId> path(request.text.begin(), request.text.end());
  NodeId child_of_shape = 1;
  std::uint64_t draws = 0;
  for (NodeId node = 0; node < shape.size(); ++node) {
    const auto count = at(shape.child_count(node));
    if (const NodeId parent = grown[at(node)]; parent >= 0 && count > 0) {
      path.resize(request.text.size());
      const auto below_root = path.end() - path.begin();
      for (NodeId up = parent; up > 0; up = draft.tree.parent(up))
        path.insert(path.begin() + below_root, draft.tree.token(up));
      const std::vector<TokenId> children = propose(path, count, request.rng, draws);
      if (!children.empty()) {
        const NodeId first = draft.tree.add_children(parent, children).first;
        for (std::size_t k = 0; k < children.size(); ++k)
          grown[at(child_of_shape) + k] = first + static_cast<NodeId>(k);
      }
    }
    draws += count;
    child_of_shape += static_cast<NodeId>(count);
  }
  draft.row.assign(at(draft.tree.size()), -1);
  return draft;
}

std::vector<TokenId> ModelFreeDrafter::propose(std::span<const TokenId> path, std::size_t count,
                                               const StepRng& rng, std::uint64_t first_draw) {
  switch (draft_.kind) {
    case Kind::kNgram:
      return frequent(path, count);
    case Kind::kCopy:
      return copied(path, count);
    default:
      return random(count, rng, first_draw);
  }
}

template <class Visit>
void ModelFreeDrafter::visit_successors(std::span<const TokenId> path, TokenId token,
                                        const Visit& visit) const {
  for (std::size_t i = path.size() - 1; i > 0; --i)
    if (path[i - 1] == token) visit(path, i);
  const std::span<const TokenId> corpus = corpus_of(draft_);
  for (std::int32_t i = begin_[at(token) + 1]; i-- > begin_[at(token)];)
    if (const std::size_t after = at(places_[at(i)]) + 1; after < corpus.size())
      visit(corpus, after);
}

void ModelFreeDrafter::count_text(std::span<const TokenId> text) {
  std::copy(corpus_counts_.begin(), corpus_counts_.end(), counts_.begin());
  for (const TokenId token : text) ++counts_[at(token)];
  by_count_.clear();
  for (TokenId token = 0; token < vocab_; ++token)
    if (counts_[at(token)] > 0) by_count_.push_back(token);
  std::stable_sort(by_count_.begin(), by_count_.end(),
                   [&](TokenId a, TokenId b) { return counts_[at(a)] > counts_[at(b)]; });
}

std::vector<TokenId> ModelFreeDrafter::frequent(std::span<const TokenId> path, std::size_t count) {
  std::vector<TokenId> tokens;
  if (draft_.length == 2) {
    std::unordered_map<TokenId, int> followed;
    visit_successors(path, path.back(),
                     [&](std::span<const TokenId> in, std::size_t i) { ++followed[in[i]]; });
    std::vector<std::pair<int, TokenId>> order;
    for (const auto& [token, times] : followed) order.emplace_back(-times, token);
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < std::min(count, order.size()); ++i)
      tokens.push_back(order[i].second);
  }
  const std::size_t of_pairs = tokens.size();
  for (std::size_t i = 0; i < by_count_.size() && tokens.size() < count; ++i)
    if (!contains(std::span(tokens).first(of_pairs), by_count_[i])) tokens.push_back(by_count_[i]);
  return tokens;
}

std::vector<TokenId> ModelFreeDrafter::copied(std::span<const TokenId> path,
                                              std::size_t count) const {
  std::vector<std::pair<int, TokenId>> found;  // length of the match, what followed
  visit_successors(path, path.back(), [&](std::span<const TokenId> in, std::size_t i) {
    const int length = length_of_match(in, i, path);
    if (length >= draft_.length) found.emplace_back(length, in[i]);
  });
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<TokenId> tokens;
  for (const auto& match : found) {
    if (tokens.size() == count) break;
    if (!contains(tokens, match.second)) tokens.push_back(match.second);
  }
  return tokens;
}

std::vector<TokenId> ModelFreeDrafter::random(std::size_t count, const StepRng& rng,
                                              std::uint64_t draw) const {
  // Floyd's algorithm: the i-th token is of those below vocab - count + i + 1, or that bound itself
  // where it was drawn before.
  std::vector<TokenId> tokens;
  const std::size_t vocab = at(vocab_);
  count = std::min(count, vocab);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t bound = vocab - count + i;
    const double uniform = rng.uniform(StepRng::Purpose::kDraft, draw + i);
    const auto token = static_cast<TokenId>(
        std::min(bound, static_cast<std::size_t>(uniform * static_cast<double>(bound + 1))));
    tokens.push_back(contains(tokens, token) ? static_cast<TokenId>(bound) : token);
  }
  return tokens;
}

}  // namespace canopy
