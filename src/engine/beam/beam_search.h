#pragma once
#include <functional>
#include <stop_token>
#include <vector>

#include "src/engine/batch.h"
#include "src/engine/beam/beam_set.h"

namespace canopy {

struct BeamRequest {
  std::vector<TokenId> prompt;  // at least one token
  double length_penalty = 1;    // 0 where the plan's tokens are decided jointly
  int max_new_tokens = 0;
  bool ignore_end = false;  // go on past the model's end tokens
};

/// Texts that a search has found, and what it took.
struct BeamReport {
  std::vector<FoundText> texts;  // the best first; as many as there are beams at most
  std::int64_t target_rows = 0, drafted_rows = 0;
  /// The best text, and what the search cost. Its tokens are levels: what each beam has gained.
  BatchReport batch;
};

/// Does what Engine::search() says: searches with the beams that the plan was made for
/// (PlanRequest::beams). A sweep checks the beams' last tokens and, with a draft, what it takes for
/// the next levels: its `draft_beams` likeliest continuations, level by level. The target then
/// takes its own beams for as long as all of them are among the draft's, and one level beyond: the
/// texts are those of a plain beam search of the target, to the last bit of each sum. What beams
/// have in common is committed; where they part, their rows are run again in each sweep. Source:
/// arXiv:2211.17192, A.4.
///
/// `on_step`: as GenerateEvents::on_step; its tokens are levels. Throws Error if the prompt does
/// not fit the plan or values are not finite; Stopped on request.
BeamReport beam_search(Runtime& runtime, const BeamRequest& request,
                       const std::function<void(const StepProgress&)>& on_step = {},
                       std::stop_token stop = {});

}  // namespace canopy
