#include "src/measure/calibration_prompts.h"

#include <algorithm>
#include <string_view>

namespace canopy {
namespace {

constexpr std::string_view kTexts =
#include "calibration_prompts.inc"  // made from calibration_prompts.txt when building
    ;
constexpr std::string_view kBetween = "\n----\n";

}  // namespace

std::vector<std::string> default_prompts() {
  std::vector<std::string> texts;
  for (std::string_view rest = kTexts; !rest.empty();) {
    const std::size_t end = std::min(rest.find(kBetween), rest.size());
    texts.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + kBetween.size(), rest.size()));
  }
  return texts;
}

std::vector<PromptCut> cut_prompts(const Tokenizer& tokenizer, std::span<const std::string> texts,
                                   int count, int tokens) {
  struct Text {
    int number;
    std::vector<TokenId> before, ids;
    int last_offset;  // the beginning of the last full cut
  };
  std::vector<Text> all;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::vector<TokenId> whole = tokenizer.encode(texts[i], AddSpecial::kYes);
    Text text{static_cast<int>(i), {}, tokenizer.encode(texts[i], AddSpecial::kNo), 0};
    text.before.assign(whole.begin(), whole.end() - static_cast<std::ptrdiff_t>(text.ids.size()));
    text.last_offset = std::max(0, static_cast<int>(text.before.size() + text.ids.size()) - tokens);
    if (!text.ids.empty()) all.push_back(std::move(text));
  }
  std::vector<PromptCut> cuts;
  if (all.empty()) return cuts;
  const int rounds = (count - 1) / static_cast<int>(all.size()) + 1;
  for (int round = 0; round < rounds; ++round)
    for (const Text& text : all) {
      const int places = std::min(rounds, text.last_offset + 1);
      if (round >= places || std::ssize(cuts) == count) continue;
      const int offset = places == 1 ? 0 : text.last_offset * round / (places - 1);
      PromptCut cut{text.number, text.before};
      const auto from = text.ids.begin() + offset;
      const auto most = std::max(1, tokens - static_cast<int>(cut.tokens.size()));
      cut.tokens.insert(cut.tokens.end(), from,
                        from + std::min<std::ptrdiff_t>(most, text.ids.end() - from));
      cuts.push_back(std::move(cut));
    }
  return cuts;
}

}  // namespace canopy
