#include "src/cli/options/decode_options.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/cli/options/model/hub_model.h"
#include "src/cli/options/model/profile.h"
#include "src/cli/options/model/repack.h"
#include "src/cli/options/values.h"
#include "src/cli/output/aside.h"
#include "src/engine/head_source.h"
#include "src/measure/measurement_cache.h"

namespace canopy::cli {

namespace {

/// Returns about `bytes` bytes of `text`, up to the end of a line if they have one, else of a
/// character.
std::string_view portion_of(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  if (const std::size_t line = text.rfind('\n', bytes - 1); line != text.npos)
    return text.substr(0, line + 1);
  while ((static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

/// --draft-corpus, as tokens. Throws Error.
std::vector<TokenId> read_corpus(const std::string& file, const Tokenizer& tokenizer,
                                 const std::stop_token& stop) {
  // Encoding takes many times a text's memory. A draft does not miss the tokens that would have
  // crossed a cut.
  constexpr std::size_t kPortionBytes = 1 << 20;
  const std::string text = read_text(file, kMostTextBytes, stop);
  if (!is_utf8(text)) throw Error("--draft-corpus " + file + ": is not UTF-8 text");
  std::vector<TokenId> tokens;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view portion = portion_of(rest, kPortionBytes);
    const std::vector<TokenId> more = tokenizer.encode(portion, AddSpecial::kNo, stop);
    tokens.insert(tokens.end(), more.begin(), more.end());
    rest.remove_prefix(portion.size());
  }
  if (tokens.empty()) throw Error("--draft-corpus " + file + ": is empty");
  return tokens;
}

void print_note(const std::string& note) { aside() << "note: " << note << "\n"; }

}  // namespace

void DecodeOptions::add_flags(Flags& all) {
  Flags of_model = model.flags();
  of_model.add_options()("repack", into(repack, "DIR"), kRepackHelp);
  all.add(sampling.flags()).add(speculation.flags()).add(of_model);
}

EngineOptions DecodeOptions::engine_options(const std::optional<Gpus>& gpus) const {
  EngineOptions options = model.engine_options(gpus);
  speculation.put_into(options.plan);
  options.plan.temperature = static_cast<double>(sampling.sampling().temperature);
  return options;
}

ModelFiles DecodeOptions::open(PlanRequest& plan, const std::stop_token& stop) const {
  const bool drafted = plan.method != SpeculationMethod::kNone && !drafts_with_itself(plan.method);
  const bool by_model = drafted && !plan.draft;
  const bool by_second = speculation.inner_draft && takes_inner_draft(plan.method) && !plan.inner;
  std::filesystem::path target = local_model(model.model, stop);
  if (repack) target = by_rows(target, *repack, model, stop);
  ModelFiles models =
      open_models(target, by_model ? local_model(speculation.draft.value_or(""), stop) : "",
                  by_second ? local_model(*speculation.inner_draft, stop) : "", model.holes());
  if (speculation.medusa && drafted) {
    models.heads = open_medusa_heads(*speculation.medusa, models.target, model.holes());
    plan.draft = head_source(*models.heads, models.target);
    if (!models.heads->names_its_model)
      aside() << "note: " << models.heads->file.string()
              << " does not say which model its heads were trained for\n";
  }
  if (plan.draft && speculation.draft_corpus)
    plan.draft =
        plan.draft->with_corpus(read_corpus(*speculation.draft_corpus, *models.tokenizer, stop));
  if (!(models.draft || plan.draft) || !plan.shape) return models;
  const TreeShape& shape = *plan.shape;
  int vocab = models.target.config().vocab;
  if (models.draft) vocab = std::min(vocab, models.draft->config().vocab);
  for (NodeId node = 0; node < shape.size(); ++node)
    if (shape.child_count(node) > vocab)
      throw UsageError("--tree " + *speculation.tree + ": node " + std::to_string(node) + " has " +
                       std::to_string(shape.child_count(node)) + " children, and the models have " +
                       std::to_string(vocab) + " tokens");
  return models;
}

Assumptions DecodeOptions::find_assumptions(const ModelFiles& models, EngineOptions& options,
                                            ProgressLine& progress,
                                            const std::stop_token& stop) const {
  const auto on_note = [&](const std::string& note) {
    progress.clear();
    print_note(note);
  };
  if (models.target.shard() && !speculation.profile)
    throw UsageError("--profile: " + models.target.root().string() +
                     " has the rows of one rank alone, and is not measured; `canopy calibrate "
                     "hardware` writes a profile where the whole model is, on a machine like this");
  Assumptions found{speculation.profile ? read_profile(*speculation.profile)
                                        : find_profile(models, options, progress, stop),
                    "there is no draft to accept"};
  found.profile = with_limit(std::move(found.profile), options);
  if (speculation.learning() == Learning::kOn) options.plan.routes = find_routes(models, on_note);
  if (const std::int64_t sweeps = options.plan.routes.sweeps(); sweeps > 0)
    found.routes_from = std::to_string(sweeps) + " sweeps of earlier texts";
  if (options.plan.draft && !speculation.acceptance)
    found.acceptance_from = options.plan.draft->prior_in_words();
  if (!models.draft && !options.plan.draft) return found;
  if (models.draft && speculation.profile && !found.profile.drafting)
    throw Error(*speculation.profile + ": measured without a draft model; measure again with -md");
  if (speculation.acceptance) {
    options.plan.acceptance = read_acceptance(*speculation.acceptance);
    found.acceptance_from = "of " + *speculation.acceptance;
  } else if (!models.draft) {
    return found;
  } else if (auto kept = find_acceptance(acceptance_key(models, options.plan),
                                         speculation.learning(), on_note)) {
    options.plan.acceptance = std::move(kept->acceptance);
    found.acceptance_from = std::move(kept->from);
    options.plan.calibrated = kept->calibrated;
  } else {
    found.acceptance_from =
        "assumed to be a self-draft's; canopy calibrate acceptance would measure it";
  }
  return found;
}

AcceptanceKey DecodeOptions::acceptance_key(const ModelFiles& models,
                                            const PlanRequest& plan) const {
  return {models, sampling.sampling(), plan.method};
}

void DecodeOptions::learn(const Engine& engine, const PlanRequest& plan,
                          const LearnedAcceptance& learned) const {
  if (speculation.no_learn) return;
  try {
    keep_routes(engine);
    keep_acceptance(acceptance_key(engine.models(), plan), learned, print_note);
  } catch (const Error& e) {
    print_note("what texts have shown is not kept for later plans: " + std::string(e.what()));
  }
}

}  // namespace canopy::cli
