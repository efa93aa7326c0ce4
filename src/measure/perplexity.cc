#include "src/measure/perplexity.h"

#include <algorithm>
#include <vector>

#include "src/base/counting.h"
#include "src/base/error.h"
#include "src/engine/engine_parts.h"

namespace canopy {

Loss measure_loss(Engine& engine, std::span<const TokenId> text, int context,
                  const LossEvents& events, std::stop_token stop) {
  TargetModel& target = engine.parts().target();
  require(context >= 2 && context - 1 <= engine.plan().target_limits.max_logit_rows,
          "the plan has no room for the logits of a window");
  const KvCaches::Loan kv = target.kv().lend();
  Loss loss;
  const std::vector<std::int32_t> position = counting(0, static_cast<std::size_t>(context));
  while (text.size() > 1) {
    const std::span<const TokenId> window = text.first(std::min(text.size(), position.size()));
    text = text.subspan(window.size());
    kv->truncate(0);
    kv->turn_to(target.config().text_length(window.size()));
    const auto all = std::span(position).first(window.size());
    const SequenceRows rows{{window, all, {}, 0, all.first(window.size() - 1)}, kv.get(), 0};
    const ConstTensorView logits = target.forward({&rows, 1}, stop, events.on_unit);
    try {
      for (std::size_t i = 1; i < window.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i) - 1;
        loss.sum -= target.report_token(logits, row, window[i], 0).chosen.logprob;
        ++loss.tokens;
      }
    } catch (const NotFinite&) {
      target.refuse_not_finite({&rows, 1}, stop);
    }
    if (events.on_window) events.on_window(loss);
  }
  return loss;
}

}  // namespace canopy
