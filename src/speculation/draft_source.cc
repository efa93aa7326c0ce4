#include "src/speculation/draft_source.h"

#include <array>

#include "src/speculation/drafters/model_free_drafter.h"

namespace canopy {

namespace {

std::vector<ParseDraft>& kinds() {
  static std::vector<ParseDraft> all{parse_model_free_draft};
  return all;
}

}  // namespace

Curve DraftSource::level_seconds() const { return Curve::fit(std::array{Sample{0, Seconds(0)}}); }

std::shared_ptr<const DraftSource> draft_source_named(std::string_view text) {
  for (const ParseDraft parse : kinds())
    if (auto source = parse(text)) return source;
  return nullptr;
}

void add_draft_kind(ParseDraft parse) { kinds().push_back(parse); }

}  // namespace canopy
