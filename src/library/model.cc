#include <algorithm>
#include <utility>

#include "planner/tree_shape.h"
#include "src/base/ambient.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/size_text.h"
#include "src/chat/chat_prompt.h"
#include "src/engine/device_name.h"
#include "src/library/model_impl.h"
#include "src/machine/cpus.h"
#include "src/measure/measurement_cache.h"

namespace canopy::api {

namespace {

constexpr int kContext = 2048;           // tokens, where nobody says how many
constexpr int kMostTokens = 10'000'000;  // longer than any model's context; sums stay numbers

std::vector<int> checked_cpus(const Options& options) {
  require(options.threads >= 0, "Options::threads: must be at least 0");
  const std::vector<int> allowed = allowed_cpus();
  for (const int cpu : options.cpus) {
    if (!std::binary_search(allowed.begin(), allowed.end(), cpu))
      throw Error("Options::cpus: this process may not use CPU " + std::to_string(cpu));
    if (std::count(options.cpus.begin(), options.cpus.end(), cpu) > 1)
      throw Error("Options::cpus: CPU " + std::to_string(cpu) + " is there twice");
  }
  if (!options.cpus.empty() && options.threads > std::ssize(options.cpus))
    throw Error("Options::threads: " + std::to_string(options.threads) +
                " are more than the CPUs of Options::cpus, " + std::to_string(options.cpus.size()));
  return options.cpus;
}

/// The option that a field of a Speculation comes from.
const char* field_of(SpeculationField field) {
  switch (field) {
    case SpeculationField::kMethod:
      return "method";
    case SpeculationField::kShape:
    case SpeculationField::kTreeSize:
    case SpeculationField::kTreeLevels:
      return "tree_nodes";
    default:
      return "draft";
  }
}

/// Returns the options, but for what comes from the models and their profile.
EngineOptions engine_options(const Options& options) {
  EngineOptions engine;
  const auto device = device_named(options.device);
  if (!device)
    throw Error("Options::device: '" + options.device + "' is none of auto, cpu, cuda, cuda:N");
  engine.device = *device;
  engine.device.threads = options.threads;
  engine.device.gpu_memory = options.gpu_memory;
  engine.device.cpus = checked_cpus(options);
  require(options.gpu_memory == 0 || device->kind == "cuda",
          "Options::gpu_memory: no GPU is used; leave it at 0");
  require(options.context >= 0 && options.context <= kMostTokens,
          "Options::context: must be from 0 to 10,000,000 tokens");
  require(options.sequences >= 1, "Options::sequences: must be at least 1");
  require(options.temperature >= 0, "Options::temperature: must be at least 0");
  PlanRequest& plan = engine.plan;
  plan.memory = options.memory;
  const auto method = method_named(options.method);
  if (!method)
    throw Error("Options::method: '" + options.method + "' is none of " + method_names());
  if (row_of(*method).inexact || takes_inner_draft(*method))
    throw Error("Options::method: " + options.method +
                " is the command's alone: a program's texts are exact, and come from one draft");
  plan.method = *method;
  if (options.tree_nodes < 0 || options.tree_nodes > kMostTreeNodes)
    throw Error("Options::tree_nodes: must be from 0 to " + std::to_string(kMostTreeNodes));
  plan.tree_size = options.tree_nodes;
  if (const auto fault = find_fault(plan, {.model = !options.draft.empty()}))
    throw Error("Options::" + std::string(field_of(fault->field)) + ": " + fault->what);
  plan.context = options.context;
  plan.max_sequences = options.sequences;
  if (options.kv_memory > 0) plan.kv_memory = options.kv_memory;
  plan.resident = options.resident_bytes;
  plan.temperature = options.temperature;
  return engine;
}

void fit_context(const ModelConfig& model, PlanRequest& plan) {
  const bool asked = plan.context > 0;
  if (!asked)
    plan.context = model.max_positions > 0 ? std::min(kContext, model.max_positions) : kContext;
  require(plan.context >= 2, "Options::context: must have room for a prompt and a token");
  plan_for_conversations(plan, asked);
}

Sampling planned_for(const Options& options) {
  Sampling sampling;
  sampling.temperature = static_cast<float>(options.temperature);
  return sampling;
}

/// Finds the assumptions of the plan, which it adds to `engine.plan`: costs, routes, acceptance.
void find_assumptions(const Options& options, const ModelFiles& models, EngineOptions& engine,
                      const ProfileEvents& events, const std::stop_token& stop) {
  HardwareProfile profile;
  if (options.profile.empty()) {
    profile = find_profile(models, engine, events, stop);
  } else {
    const std::string file = options.profile.string();
    profile = parse_profile(file, read_file(file, kMostSettingsBytes, FileKind::kOfUser, stop));
    if (models.draft && !profile.drafting)
      throw Error("Options::profile: " + file +
                  " was measured without a draft model; measure again with one");
  }
  engine.plan.cost = std::make_shared<CostModel>(std::move(profile));
  const Learning learning = options.learn ? Learning::kOn : Learning::kOff;
  if (options.learn) engine.plan.routes = find_routes(models, events.on_note);
  if (auto kept = find_acceptance({models, planned_for(options), engine.plan.method}, learning,
                                  events.on_note)) {
    engine.plan.acceptance = std::move(kept->acceptance);
    engine.plan.calibrated = kept->calibrated;
  }
}

std::vector<LedgerLine> lines_of(const std::vector<LedgerEntry>& ledger) {
  std::vector<LedgerLine> lines;
  for (const LedgerEntry& entry : ledger) lines.push_back({entry.what, entry.bytes});
  return lines;
}

Plan summary(const canopy::Plan& plan) {
  Plan told;
  told.method = name(plan.method);
  told.tree_nodes = plan.policy.shape.size();
  told.sequences = plan.max_sequences;
  told.context = plan.context;
  told.memory_bytes = plan.memory;
  told.planned_bytes = plan.total();
  if (plan.device) {
    told.gpu_memory_bytes = plan.device->memory;
    told.gpu_planned_bytes = plan.device->total();
  }
  told.resident_bytes = plan.resident_bytes;
  told.read_bytes = plan.sweep_bytes;
  told.ledger = lines_of(plan.ledger);
  if (plan.device) told.gpu_ledger = lines_of(plan.device->ledger);
  if (plan.prediction) {
    const Candidate& best = plan.prediction->best;
    told.predicted_tokens_per_sweep = best.tokens * best.sequences;
    told.predicted_seconds_per_token = best.per_token().count();
  }
  return told;
}

}  // namespace

const char* version() { return CANOPY_VERSION; }

std::uint64_t parse_size(std::string_view text) {
  const auto size = read_size(text);
  if (!size) throw Error(not_a_size(text));
  if (const auto question = size->forgotten_unit()) throw Error(*question);
  return static_cast<std::uint64_t>(size->bytes);
}

const chat::ChatTemplate& Model::Impl::chat_template() {
  const std::lock_guard lock(mutex_);
  if (!chat_template_) {
    const Checkpoint& target = engine.models().target;
    chat_template_ = chat::ChatTemplate::load(target.root(), target.metadata());
  }
  return *chat_template_;
}

Model::Model(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Model Model::open(const Options& options, const OpenEvents& events, std::stop_token stop) {
  EngineOptions engine = engine_options(options);
  const bool drafts = engine.plan.method != SpeculationMethod::kNone;
  ModelFiles models = open_models(options.model, drafts ? options.draft : std::filesystem::path());
  fit_context(models.target.config(), engine.plan);
  Notes notes;
  const auto on_note = [&](const std::string& note) { add_note(notes, note); };
  find_assumptions(options, models, engine, {on_note, events.on_measure}, stop);
  auto impl = std::make_shared<Impl>(std::move(models), engine, events.on_load, std::move(stop));
  impl->notes = std::move(notes);
  impl->learns = options.learn && impl->engine.models().draft.has_value();
  impl->planned_for = planned_for(options);
  impl->asked = engine.plan.method;
  impl->plan = summary(impl->engine.plan());
  return Model(std::move(impl));
}

const Plan& Model::plan() const { return impl_->plan; }
std::string Model::device() const { return impl_->engine.device_name(); }

std::vector<std::string> Model::notes() const {
  Notes notes = impl_->notes;
  for (const std::string& note : impl_->engine.notes()) add_note(notes, note);
  return notes;
}

std::vector<TokenId> Model::tokenize(std::string_view text) const {
  return impl_->engine.models().tokenizer->encode(text, AddSpecial::kYes);
}

std::vector<TokenId> Model::tokenize(const Conversation& conversation) const {
  const auto part = [](const char* name, const std::string& text) {
    if (text.empty()) return nlohmann::ordered_json();
    return in_context(std::string("reading Conversation::") + name,
                      [&] { return parse_ordered_json(text); });
  };
  const ModelFiles& models = impl_->engine.models();
  const chat::Prompt prompt =
      chat::render_prompt(impl_->chat_template(), *models.tokenizer,
                          {.messages = part("messages", conversation.messages),
                           .tools = part("tools", conversation.tools),
                           .variables = part("variables", conversation.variables)},
                          local_time());
  return chat::encode(prompt, {}, *models.tokenizer);
}

std::string Model::detokenize(std::span<const TokenId> tokens) const {
  return impl_->engine.models().tokenizer->decode(tokens, AddSpecial::kNo);
}

}  // namespace canopy::api
