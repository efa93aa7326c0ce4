// canopy plan: what generate would do, and why.
#include <cmath>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "kernels/gpu_scratch.h"
#include "src/base/error.h"
#include "src/base/json_text.h"
#include "src/base/size_text.h"
#include "src/base/utf8.h"
#include "src/cli/commands/commands.h"
#include "src/cli/interrupt.h"
#include "src/cli/options/decode_options.h"
#include "src/cli/options/foreign_flag.h"
#include "src/cli/options/length_options.h"
#include "src/cli/options/model/conversation.h"
#include "src/cli/options/model/model_shape.h"
#include "src/cli/options/model/packing.h"
#include "src/cli/options/model/profile.h"
#include "src/cli/options/rank_options.h"
#include "src/cli/output/plan_words.h"
#include "src/cli/output/table.h"
#include "src/engine/ranks/plan_together.h"
#include "src/machine/process_memory.h"

namespace canopy::cli {

using nlohmann::json;

namespace {

constexpr const char* kUsage =
    "usage: canopy plan -m MODEL [-md DRAFT] [--memory SIZE] [FLAG ...]\n\n"
    "Shows what generate would do with this budget, and why: the trees that were considered, the\n"
    "predicted seconds per token, what limits them and what would help. Reads headers only, if "
    "the\n"
    "machine has been measured before; with --profile it plans for the machine of that profile, "
    "which\n"
    "may have a GPU where this one has none. With a profile MODEL and DRAFT may be shapes, without "
    "any\n"
    "weights: ";

/// One thing that somebody could buy.
struct Remedy {
  std::string what;
  std::optional<Candidate> best;  // nothing: no plan fits, or none is made from measurements
};

std::string kind(const Candidate& c) {
  if (c.shape.size() == 1) return "plain";
  if (c.valued) return "calibrated";
  return c.shape.levels() == c.shape.size() ? "chain" : "tree";
}

json candidate_json(const Candidate& c) {
  return {{"kind", kind(c)},
          {"tree_size", c.shape.size()},
          {"tree_depth", c.shape.levels()},
          {"sequences", c.sequences},
          {"text_tokens", c.text_tokens},
          {"tokens_per_step", c.tokens},
          {"seconds_per_step", c.cost.step.count()},
          {"seconds_per_token", c.per_token().count()},
          {"link_seconds", c.cost.link.count()},
          {"compute_seconds", c.cost.compute.count()},
          {"draft_seconds", c.cost.draft.count()},
          {"exchange_seconds", c.cost.exchange.count()},
          {"verify_seconds", c.cost.verify.count()},
          {"bottleneck", name(c.cost.bottleneck)},
          {"ring_bytes", c.ring_bytes},
          {"resident_bytes", c.resident_bytes},
          {"sweep_bytes", c.sweep_bytes}};
}

const Table& candidates_table() {
  static const Table table({{.head = "", .width = 1, .before = ""},
                            {.head = "kind", .width = 10, .align = Align::kLeft},
                            {.head = "nodes", .width = 5},
                            {.head = "depth", .width = 5},
                            {.head = "seqs", .width = 4},
                            {.head = "tok/step", .width = 8},
                            {.head = "link s", .width = 9},
                            {.head = "compute s", .width = 9},
                            {.head = "draft s", .width = 9},
                            {.head = "step s", .width = 9},
                            {.head = "s/token", .width = 9},
                            {.head = "limit", .width = 9, .align = Align::kLeft, .before = "  "},
                            {.head = "resident", .width = 8},
                            {.head = "ring", .width = 8}});
  return table;
}

std::string text_row(const Candidate& c, const std::string& mark) {
  return candidates_table().row(
      {mark, kind(c), std::to_string(c.shape.size()), std::to_string(c.shape.levels()),
       std::to_string(c.sequences), fixed(c.tokens, 2), fixed(c.cost.link.count(), 3),
       fixed(c.cost.compute.count(), 3), fixed(c.cost.draft.count(), 3),
       fixed(c.cost.step.count(), 3), fixed(c.per_token().count(), 3), name(c.cost.bottleneck),
       format_size(c.resident_bytes), format_size(c.ring_bytes)});
}

void print_candidates(const Choice& choice) {
  const Candidate& best = choice.best;
  std::cout << candidates_table().head();
  bool marked = false;
  for (const Candidate& c : choice.table) {
    // Beyond the best, trees only grow worse; the JSON has them all.
    if (c.shape.size() > best.shape.size() && c.per_token() > 2 * best.per_token()) continue;
    const bool chosen = !marked && c.valued == best.valued && c.shape.size() == best.shape.size() &&
                        c.shape.levels() == best.shape.levels() && c.sequences == best.sequences;
    std::cout << text_row(c, chosen ? "*" : "");
    marked = marked || chosen;
  }
  if (!marked) std::cout << text_row(best, "*");
}

/// Ranks up to which the disks set the pace of the best candidate's step, and not the bytes on the
/// network; nothing where nothing is read.
std::optional<int> most_ranks(const Plan& plan) {
  const Network& network = plan.cost->network();
  const Candidate& best = plan.prediction->best;
  // Each of N ranks reads W/N bytes and receives (N-1)/N of all columns (docs/math.md, "Ranks").
  const double all = best.cost.link.count() * network.ranks;
  Network no_latency = network;
  no_latency.latency = Seconds(0);
  double columns = 0;
  for (const SweepUnit& unit : plan.weights.units)
    columns +=
        no_latency.gather(best.shape.size() * best.sequences, static_cast<double>(unit.gathered), 0)
            .count();
  columns *= static_cast<double>(network.ranks) / (network.ranks - 1);
  if (all == 0 || columns == 0) return std::nullopt;
  return static_cast<int>(1 + std::min(all / columns, 1e6));
}

/// Forms of the target's BF16 weights, if it has such; `now` is the one that it has.
struct Packing {
  std::vector<FormSeconds> forms;  // none: nothing is said of them
  DType now = DType::kBF16;
};

void print(const Plan& plan, const Assumptions& assumed, const std::vector<Remedy>& remedies,
           const Packing& packing) {
  static const Table table({{.head = "", .width = 34, .align = Align::kLeft, .before = "  with "},
                            {.head = "", .align = Align::kLeft}});
  const Candidate& best = plan.prediction->best;
  const double now = best.per_token().count();
  const auto row = [&](const std::string& what, double then) {
    const double change = 100 * (then / now - 1);
    return table.row({what + ":", fixed(then, 3) + " s per token (" +
                                      (std::signbit(change) ? "" : "+") + fixed(change, 0) +
                                      " %)"});
  };
  std::cout << (assumed.profile.modelled ? "MODELLED, not measured: " : "measured on ")
            << assumed.profile.machine << ", " << assumed.profile.date
            << "\nacceptance: " << assumed.acceptance_from << "\nbudget "
            << format_size(plan.memory) << ", of which " << format_size(plan.total())
            << " are planned\n";
  if (plan.device)
    std::cout << "on the GPU " << format_size(plan.device->memory) << ", of which "
              << format_size(plan.device->total()) << " are planned\n";
  std::cout << "\n";
  print_candidates(*plan.prediction);
  std::cout << "\npredicted: " << fixed(now, 3) << " s per token, " << fixed(best.tokens, 2)
            << " tokens per step of " << fixed(best.cost.step.count(), 3) << " s; the limit is the "
            << name(best.cost.bottleneck) << "\n";
  if (const ExpertReads& experts = plan.weights.experts; experts.bytes > 0)
    std::cout << "experts: " << experts.stay << " of " << experts.layers * experts.count
              << " stay in memory; of the " << experts.layers * experts.active
              << " that a token asks for, " << fixed(experts.misses(1), 1)
              << " are expected to be read, " << format_size(experts.bytes_of(1)) << ", by "
              << assumed.routes_from << "\n";
  if (const Network& network = plan.cost->network(); network.ranks > 1) {
    std::cout << network.ranks << " ranks, of which this is the first: columns travel for "
              << fixed(best.cost.exchange.count(), 3) << " s of a step";
    if (const auto most = most_ranks(plan)) std::cout << "; more than " << *most << " gain nothing";
    std::cout << "\n";
  }
  const Candidate& full = plan.prediction->full;
  if (plan.pool_bytes > 0)
    std::cout << "weights and texts share " << format_size(plan.pool_bytes) << ": "
              << format_size(plan.resident_bytes) << " of weights stay at first, "
              << format_size(plan.full_resident_bytes) << " with the longest texts\n";
  if (plan.max_sequences > best.sequences || plan.pool_bytes > 0)
    std::cout << "for " << full.sequences << (full.sequences == 1 ? " text" : " texts at a time")
              << (plan.pool_bytes > 0 ? " of full length: " : ": ")
              << (full.valued ? "calibrated " : "") << in_words(full.shape) << ", "
              << fixed(full.per_token().count(), 3) << " s per token\n";
  for (const std::string& note : plan.notes) std::cout << "note: " << note << "\n";
  for (const Remedy& remedy : remedies) {
    if (!remedy.best) continue;
    std::cout << row(remedy.what, remedy.best->per_token().count());
  }
  if (packing.forms.empty()) return;
  for (const FormSeconds& form : packing.forms)
    if (form.seconds && form.cost.dtype != packing.now)
      std::cout << row(form_name(form.cost.dtype), *form.seconds);
  std::cout << packing_words(packing.forms, packing.now) << "\n";
}

json plan_json(const Plan& plan, const Assumptions& assumed, const std::vector<Remedy>& remedies,
               const Packing& packing) {
  const auto ledger_json = [](const std::vector<LedgerEntry>& entries) {
    json ledger = json::object();
    for (const LedgerEntry& entry : entries) ledger[entry.what] = entry.bytes;
    return ledger;
  };
  json out{{"plan", candidate_json(plan.prediction->best)},
           {"spec", name(plan.method)},
           {"memory_bytes", plan.memory},
           {"planned_bytes", plan.total()},
           {"machine", assumed.profile.machine},
           {"modelled", assumed.profile.modelled},
           {"resident_layers", plan.resident_layers},
           {"ring_layers", plan.ring_layers},
           {"acceptance", assumed.acceptance_from},
           {"context", plan.context},
           {"places", plan.max_sequences},
           {"full_house", candidate_json(plan.prediction->full)},
           {"pool_bytes", plan.pool_bytes},
           {"notes", plan.notes},
           {"ledger", ledger_json(plan.ledger)}};
  const std::span<const NodeId> parents = plan.prediction->best.shape.parents();
  out["plan"]["parents"] = std::vector(parents.begin(), parents.end());  // --tree takes them
  for (const Candidate& c : plan.prediction->table) out["candidates"].push_back(candidate_json(c));
  for (const Remedy& remedy : remedies)
    if (remedy.best) out["with"][remedy.what] = candidate_json(*remedy.best);
  for (const FormSeconds& form : packing.forms)
    out["packing"]["forms"][form_name(form.cost.dtype)] = {
        {"bits", form.cost.bits},
        {"weights_per_second", 1 / form.cost.per_weight.count()},
        {"seconds_per_token", form.seconds ? json(*form.seconds) : json()}};
  if (!packing.forms.empty())
    out["packing"]["pays"] = form_name(best_form(packing.forms, packing.now).cost.dtype);
  if (const ExpertReads& experts = plan.weights.experts; experts.bytes > 0)
    out["experts"] = {{"stay", experts.stay},
                      {"of", experts.layers * experts.count},
                      {"bytes", experts.bytes},
                      {"misses_per_token", experts.misses(1)},
                      {"expected_by", assumed.routes_from}};
  if (const Network& network = plan.cost->network(); network.ranks > 1) {
    out["ranks"] = {{"count", network.ranks},
                    {"latency_seconds", network.latency.count()},
                    {"bytes_per_second", network.bytes_per_second}};
    if (const auto most = most_ranks(plan)) out["ranks"]["most"] = *most;
  }
  if (plan.device)
    out["gpu"] = {{"memory_bytes", plan.device->memory},
                  {"planned_bytes", plan.device->total()},
                  {"ledger", ledger_json(plan.device->ledger)}};
  return out;
}

/// Each rank refuses half as often as before.
Acceptance better_draft(const Acceptance& acceptance) {
  Acceptance better;
  double refused = 1, refused_better = 1;  // up to the rank at hand
  for (const double p : acceptance.accept) {
    const double refusal = refused > 0 ? 1 - std::min(1.0, p / refused) : 1;
    better.accept.push_back(refused_better * (1 - refusal / 2));
    refused_better *= refusal / 2;
    refused -= p;
  }
  return better;
}

/// Finds what could be bought for the same request, and the plan that each would give.
/// `acceptance`: of the draft that it was planned with; null without one.
std::vector<Remedy> find_remedies(const PlanRequest& request, const HardwareProfile& profile,
                                  const Acceptance* acceptance,
                                  const std::function<Plan(const PlanRequest&)>& plan_for) {
  constexpr int kGiB = 1 << 30;
  std::vector<Remedy> remedies;
  const auto consider = [&](const std::string& what, const auto& change) {
    PlanRequest changed = request;
    change(changed);
    const Plan other = plan_for(changed);
    remedies.push_back(
        {what, other.prediction ? std::optional(other.prediction->best) : std::nullopt});
  };
  consider("1 GiB more memory", [](PlanRequest& changed) { changed.memory += kGiB; });
  if (request.device_memory)
    consider("1 GiB more GPU memory", [](PlanRequest& changed) { *changed.device_memory += kGiB; });
  consider("a link twice as fast", [&](PlanRequest& changed) {
    HardwareProfile faster = profile;
    faster.link_bytes_per_second *= 2;
    faster.upload_bytes_per_second *= 2;
    changed.cost = std::make_shared<CostModel>(faster, request.cost->network());
  });
  if (acceptance != nullptr)
    consider("a draft refused half as often",
             [&](PlanRequest& changed) { changed.acceptance = better_draft(*acceptance); });
  return remedies;
}

/// Measures the codecs of the target's weights on this device, and predicts the target in each
/// form.
Packing compare_forms(const PlanRequest& request, const Plan& plan, const SweepLayout& target,
                      const HardwareProfile& profile, Device& device,
                      const std::function<Plan(const PlanRequest&, const Checkpoint&)>& plan_for) {
  constexpr std::uint64_t kMatrix = 64 << 20;  // no cache has that much, packed
  const std::optional<DType> now = packing_form(target);
  if (!now) return {};
  const std::vector<CodecCost> costs =
      measure_codecs(device, std::min(kMatrix, request.memory / 8), plain_form(*now));
  const auto is_now = [&](const CodecCost& cost) { return cost.dtype == *now; };
  const CodecCost& from = *std::find_if(costs.begin(), costs.end(), is_now);
  Packing packing{{}, *now};
  for (const CodecCost& to : costs) {
    if (is_now(to)) {
      packing.forms.push_back({to, plan.prediction->best.per_token().count()});
      continue;
    }
    const OtherForm other = other_form(target, profile, from, to);
    PlanRequest changed = request;
    changed.cost = std::make_shared<CostModel>(other.profile, request.cost->network());
    packing.forms.push_back({to, {}});
    try {
      packing.forms.back().seconds =
          plan_for(changed, other.target).prediction->best.per_token().count();
    } catch (const BudgetError&) {  // its units are larger than the budget has room for
    }
  }
  return packing;
}

/// The models, or shapes, which are laid out and never read.
ModelFiles open_planned(const DecodeOptions& flags, EngineOptions& options,
                        const std::stop_token& stop) {
  const std::string& target = flags.model.model;
  const bool by_model = !options.plan.draft;
  const std::string draft = by_model ? flags.speculation.draft.value_or("") : "";
  const bool shape = names_model_shape(target);
  const std::string inner = options.plan.inner ? "" : flags.speculation.inner_draft.value_or("");
  for (const auto& [flag, name] :
       {std::pair("--model-draft", &draft), std::pair("--model-draft-draft", &inner)})
    if (!name->empty() && names_model_shape(*name) != shape)
      throw UsageError("--model, " + std::string(flag) +
                       ": one is a shape and one is not; give all of a kind");
  if (!shape) return flags.open(options.plan, stop);
  if (flags.speculation.medusa)
    throw UsageError("--medusa: heads belong to a model, not to a shape");
  if (!flags.speculation.profile)
    throw UsageError("--profile: is needed, as a shape cannot be measured");
  if (flags.speculation.draft_corpus)
    throw UsageError("--draft-corpus: a shape has no tokenizer to read it with");
  const auto laid_out = [](const std::string& name) {
    return lay_out_random_checkpoint(parse_model_shape(name), LayerBytes::kOwn, name);
  };
  ModelFiles models{laid_out(target), std::nullopt, nullptr};
  if (options.plan.method != SpeculationMethod::kNone && !draft.empty())
    models.draft = laid_out(draft);
  if (!inner.empty()) models.inner = laid_out(inner);
  for (const auto* with : {&models.draft, &models.inner})
    if (*with) require_same_vocabulary(models.target.config(), (*with)->config());
  return models;
}

/// Takes a profile for a shape, of which nothing was measured, whatever the profile was made of.
/// Takes a profile of another target with one kind of layer for all kinds.
Assumptions assume_for_shape(HardwareProfile profile, const ModelConfig& shape) {
  profile.modelled = true;
  if (profile.layers.size() == 1)
    profile.layers.resize(shape.layer_kinds.size(), profile.layers.front());
  return {std::move(profile), "assumed to be a self-draft's (SmolLM2-135M, Q4_0)"};
}

/// --profile's, if it is given.
std::optional<HardwareProfile> given_profile(const SpeculationOptions& speculation) {
  if (!speculation.profile) return std::nullopt;
  return read_profile(*speculation.profile);
}

EngineOptions options_for(const DecodeOptions& flags, const std::optional<HardwareProfile>& there) {
  if (!there) return flags.engine_options();
  Gpus gpus;
  if (there->of_gpu()) gpus.all.push_back({there->machine, there->gpu_memory_bytes, ""});
  EngineOptions options = flags.engine_options(gpus);
  if ((options.device.kind == "cuda") != there->of_gpu())
    throw UsageError(std::string("--device: the profile is of a machine ") +
                     (there->of_gpu() ? "with" : "without") + " a GPU");
  if (options.device.gpu_memory > 0) options.plan.device_memory = options.device.gpu_memory;
  return options;
}

struct Options {
  DecodeOptions decode;
  PlannedRanks ranks;
  int prompt_tokens = 128, samples = 1;
  std::optional<int> new_tokens, parallel;
  bool json = false;

  Flags flags() {
    Flags all, own("Request and output");
    own.add_options()  //
        ("prompt-tokens", into(prompt_tokens, "N", tokens_from(1, "--prompt-tokens")),
         "plan for a prompt of that many tokens")  //
        (kLengthFlag, length_into(new_tokens),
         "most tokens to generate, of each sample; -1: until the context is full")  //
        ("num-samples", into(samples, "K", at_least("--num-samples", 1)),
         "plan for K continuations that share sweeps")  //
        ("parallel", into(parallel, "N", at_least("--parallel", 1)),
         "plan as serve does, for N texts at most that come and go")  //
        ("json", given(json), "print one JSON object");
    add_foreign_prompt_flags(own);
    add_foreign(own, kNoWarmup);
    add_foreign(own, {"metrics", nullptr, "serve always answers GET /metrics"});
    add_foreign(own, {"slots", nullptr, "serve always answers GET /slots"});
    decode.add_flags(all);
    return all.add(ranks.flags()).add(own);
  }
};

}  // namespace

int run_plan(const std::vector<std::string>& words) {
  const std::string usage =
      std::string(kUsage) + shape_names() +
      ";\na config.json; with :packed or :levels (canopy pack), :q8_0, :q4_0, :q4_1, "
      ":q4_k, :q6_k or :mxfp4 after "
      "it in that form.";
  Options asked;
  if (!parse(words, usage, asked.flags())) return 0;
  const std::optional<HardwareProfile> there = given_profile(asked.decode.speculation);
  asked.ranks.check();
  EngineOptions options = options_for(asked.decode, there);
  if (asked.ranks.ranks > 1 && options.device.kind == "cuda")
    throw UsageError("--ranks: the ranks of a run compute on CPUs only yet; give --device cpu");
  if (asked.ranks.ranks > 1) require_for_ranks(options.plan);
  asked.ranks.own.put_into(options, nullptr);
  options.plan.max_sequences = asked.samples;
  if (const Method& method = row_of(options.plan.method);
      method.form == TreeForm::kGraph || method.inexact)
    throw UsageError(
        "--spec " + std::string(method.name) +
        ": nothing is predicted of it, as its draft says how far it goes; bench decode "
        "measures it");

  const Interrupt interrupt;
  const ModelFiles models = open_planned(asked.decode, options, interrupt.token());
  PlanRequest& request = options.plan;
  if (asked.parallel) {
    constexpr int kConnections = 256;  // serve's default
    fit_conversations(models.target.config(), request);
    fit_service(asked.parallel, kConnections, asked.decode, request);
  } else {
    request.max_prompt = asked.prompt_tokens;
    fit_context(asked.new_tokens, models.target.config(), request);
  }
  ProgressLine progress(asked.decode.model.progress);
  const Assumptions assumed =
      models.tokenizer ? asked.decode.find_assumptions(models, options, progress, interrupt.token())
                       : assume_for_shape(with_limit(*there, options), models.target.config());
  // A machine without a GPU that is not here is taken to have this one's instruction set.
  const auto device = there
                          ? make_device({.kind = "cpu", .threads = options.device.threads})
                          : open_device(options, place_engine(Topology(), models.target, options));
  const ScratchBytes scratch =
      there && there->of_gpu() ? ScratchBytes(gpu_scratch_bytes) : scratch_of(*device);
  const std::uint64_t process = resident_memory();
  request = there ? on_machine(request, *there) : on_device(request, *device);
  const Share share = asked.ranks.share();
  request.cost = std::make_shared<CostModel>(assumed.profile, asked.ranks.network(models.target));
  request.may_share_memory = share.is_whole();
  const ModelSweeps sweeps = lay_out_models(models.target, models.draft, models.inner, share);
  const auto plan_for = [&](const PlanRequest& changed) {
    return make_plan(changed, sweeps, process, scratch);
  };
  Plan plan = plan_for(request);
  for (const std::string& note : models.notes()) add_note(plan.notes, note);
  if (!models.tokenizer && there->target != asked.decode.model.model)
    add_note(plan.notes, "the profile is of another target, " + in_quotes(there->target) +
                             ": the seconds of arithmetic are that one's");
  if (!options.device.note.empty()) add_note(plan.notes, options.device.note);
  if (!there) require_free(plan, process);

  const std::vector<Remedy> remedies =
      find_remedies(request, assumed.profile, sweeps.draft ? &plan.acceptance : nullptr, plan_for);
  Packing packing;
  if (!there)
    packing = compare_forms(
        request, plan, sweeps.target, assumed.profile, *device,
        [&](const PlanRequest& changed, const Checkpoint& target) {
          return make_plan(changed, lay_out_models(target, models.draft, models.inner, share),
                           process, scratch);
        });
  if (asked.json)
    std::cout << json_text(plan_json(plan, assumed, remedies, packing), 2) << "\n";
  else
    print(plan, assumed, remedies, packing);
  return 0;
}

}  // namespace canopy::cli
