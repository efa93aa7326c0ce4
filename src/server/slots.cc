#include "src/server/slots.h"

#include <algorithm>

#include "src/base/error.h"

namespace canopy::server {

void follow(Slots& slots, const std::vector<RunningText>& running) {
  for (std::optional<Slot>& slot : slots)
    if (slot && std::ranges::find(running, slot->text, &RunningText::ticket) == running.end())
      slot.reset();
  for (const RunningText& text : running) {
    const Request& request = *text.request;
    auto slot = std::ranges::find_if(
        slots, [&](const auto& one) { return one && one->text == text.ticket; });
    if (slot == slots.end()) {
      slot = std::ranges::find_if(slots, [](const auto& one) { return !one; });
      require(slot != slots.end(), "more texts run than there are places");
      *slot = {.text = text.ticket,
               .sampling = request.sampling,
               .edits = request.edits,
               .prompt_tokens = static_cast<int>(request.prompt.size()),
               .most = request.max_new_tokens};
    }
    (*slot)->prompt_read = text.report->prompt_read;
    (*slot)->cached_tokens = text.report->cached_tokens;
    (*slot)->generated = static_cast<int>(text.report->tokens.size());
  }
}

}  // namespace canopy::server
