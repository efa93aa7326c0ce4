#include "src/speculation/drafters/draft_reading.h"

#include <algorithm>

#include "src/base/counting.h"
#include "src/base/error.h"

namespace canopy {

namespace {

/// Token that the draft runs for one that only the target's embedding has (a longer padded tail).
/// The rows it proposes from are then of another text, which costs acceptance and never exactness.
constexpr TokenId kStandIn = 0;

std::vector<TokenId> known_to(const Transformer& model, std::span<const TokenId> tokens) {
  std::vector<TokenId> known(tokens.begin(), tokens.end());
  for (TokenId& token : known)
    if (token >= model.config().vocab) token = kStandIn;
  return known;
}

}  // namespace

void read_text(Transformer& model, std::span<const TokenId> tokens, KvCache& kv, Stream& stream,
               const std::stop_token& stop) {
  const std::vector<TokenId> known = known_to(model, tokens);
  const auto most = static_cast<std::size_t>(model.limits().max_nodes);
  for (std::size_t first = 0; first < known.size(); first += most) {
    const auto part = std::span(known).subspan(first, std::min(most, known.size() - first));
    const std::vector<std::int32_t> position = counting(kv.length(), part.size());
    const SequenceRows rows{{part, position, {}, 0, {}}, &kv, 0};
    model.forward({&rows, 1}, stream, stop);
    kv.commit(counting(0, part.size()), stream);
  }
}

TensorView run_pending(Transformer& model, std::span<const PendingText> texts, Stream& stream,
                       const std::stop_token& stop) {
  const std::size_t share = static_cast<std::size_t>(model.limits().max_nodes) / texts.size();
  require(share > 0, "draft: the model was set up for fewer nodes than there are sequences");
  std::vector<std::vector<TokenId>> pending;
  for (const PendingText& text : texts) {
    const std::size_t early = text.tokens.size() - std::min(text.tokens.size(), share);
    read_text(model, text.tokens.first(early), *text.kv, stream, stop);
    pending.push_back(known_to(model, text.tokens.subspan(early)));
  }
  std::vector<std::vector<std::int32_t>> positions(texts.size());
  std::vector<std::int32_t> last(texts.size());
  std::vector<SequenceRows> parts;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    positions[i] = counting(texts[i].kv->length(), pending[i].size());
    last[i] = static_cast<std::int32_t>(pending[i].size()) - 1;
    parts.push_back({{pending[i], positions[i], {}, 0, {&last[i], 1}}, texts[i].kv});
  }
  const TensorView logits = model.forward(parts, stream, stop);
  // All but the root become text, in place; the root is then the first scratch slot.
  for (std::size_t i = 0; i < texts.size(); ++i)
    texts[i].kv->commit(counting(0, static_cast<std::size_t>(last[i])), stream);
  return logits;
}

}  // namespace canopy
