#include "src/server/replies/descriptions.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "src/server/replies/replies.h"

namespace canopy::server {

using nlohmann::json;

namespace {

/// Adds to a slot's description the text in it.
void describe_text(const Slot& slot, json& one) {
  one["id_task"] = slot.text;
  one["params"] = params_json(slot.sampling, slot.edits);
  one["params"]["max_tokens"] = slot.most;
  one["n_prompt_tokens"] = slot.prompt_tokens;
  one["n_prompt_tokens_processed"] = slot.prompt_read - slot.cached_tokens;
  one["n_prompt_tokens_cache"] = slot.cached_tokens;
  one["next_token"] = json::array({{{"has_next_token", true},
                                    {"n_remain", slot.most - slot.generated},
                                    {"n_decoded", slot.generated}}});
}

}  // namespace

json params_json(const Sampling& sampling, const LogitEditing& edits) {
  return {{"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"typical_p", sampling.typical_p},
          {"repeat_penalty", edits.repetition},
          {"presence_penalty", edits.presence},
          {"frequency_penalty", edits.frequency}};
}

json tokenizer_json(const ServedModel& model) {
  const Tokenizer& tokenizer = model.tokenizer();
  const std::vector<TokenId> before = tokenizer.encode("", AddSpecial::kYes);
  const auto& ends = model.engine.models().target.config().end_tokens;
  const auto name = [&](const std::vector<TokenId>& tokens) {
    return tokens.empty() ? json() : json(tokenizer.token_string(tokens.front()));
  };
  return {{"tokenizer_class", "canopy"},
          {"bos_token", name(before)},
          {"eos_token", name(ends)},
          {"chat_template", model.chat_template ? json(model.chat_template->source()) : json()}};
}

json models_json(const ServiceOptions& options, const ServedModel* model) {
  json one{{"id", options.model_name},
           {"object", "model"},
           {"created", std::time(nullptr)},
           {"owned_by", "canopy"}};
  if (model != nullptr) {
    const Checkpoint& target = model->engine.models().target;
    const ModelConfig& config = target.config();
    std::uint64_t bytes = 0;
    for (const TensorEntry& tensor : target.tensors()) bytes += tensor.bytes;
    one["meta"] = {{"n_vocab", config.vocab},
                   {"n_ctx", options.context},
                   {"n_ctx_train", config.max_positions},
                   {"n_embd", config.dim},
                   {"n_params", parameters(target)},
                   {"size", bytes}};
  }
  return {{"object", "list"}, {"data", json::array({std::move(one)})}};
}

namespace {

/// Describes the prediction for a number of texts in a plan.
json candidate_json(const Candidate& one) {
  return {{"texts", one.sequences},
          {"tree_nodes", one.shape.size()},
          {"tree_levels", one.shape.levels()},
          {"text_tokens", one.text_tokens},
          {"seconds_per_token", one.per_token().count()}};
}

/// Describes the ranks that share the model, and the network between them.
json ranks_json(const std::vector<RankPlace>& ranks, const Plan& plan) {
  json all = json::array();
  for (const RankPlace& rank : ranks)
    all.push_back({{"rank", all.size()}, {"host", rank.host}, {"share", rank.share}});
  json out{{"all", std::move(all)}};
  if (plan.cost) {
    out["latency_seconds"] = plan.cost->network().latency.count();
    out["bytes_per_second"] = plan.cost->network().bytes_per_second;
  }
  return out;
}

}  // namespace

json props_json(const ServiceOptions& options, const ServedModel& m) {
  const Plan& plan = m.engine.plan();
  const auto ledger = [](const std::vector<LedgerEntry>& entries) {
    json out = json::array();
    for (const LedgerEntry& entry : entries)
      out.push_back({{"what", entry.what}, {"bytes", entry.bytes}});
    return out;
  };
  json params = params_json(options.defaults.sampling, options.defaults.edits);
  params["max_tokens"] = options.most_tokens.value_or(-1);
  json out{
      {"default_generation_settings", {{"n_ctx", options.context}, {"params", std::move(params)}}},
      {"total_slots", plan.max_sequences},
      {"model_path", m.engine.models().target.root().string()},
      {"chat_template", m.chat_template ? json(m.chat_template->source()) : json()},
      {"build_info", options.build}};
  out["canopy"] = {{"method", name(plan.method)},
                   {"device", m.engine.device_name()},
                   {"tree_nodes", plan.policy.shape.size()},
                   {"resident_bytes", plan.resident_bytes},
                   {"sweep_bytes", plan.sweep_bytes},
                   {"memory_bytes", plan.memory},
                   {"ledger", ledger(plan.ledger)}};
  if (const auto ranks = m.engine.ranks(); !ranks.empty())
    out["canopy"]["ranks"] = ranks_json(ranks, plan);
  if (plan.pool_bytes > 0) {
    out["canopy"]["pool_bytes"] = plan.pool_bytes;
    out["canopy"]["full_resident_bytes"] = plan.full_resident_bytes;
    out["canopy"]["full_sweep_bytes"] = plan.full_sweep_bytes;
  }
  if (plan.prediction)
    out["canopy"]["predicted"] = {{"one_text", candidate_json(plan.prediction->best)},
                                  {"full_house", candidate_json(plan.prediction->full)}};
  if (plan.device) {
    out["canopy"]["gpu_memory_bytes"] = plan.device->memory;
    out["canopy"]["gpu_ledger"] = ledger(plan.device->ledger);
  }
  return out;
}

json slots_json(const ServiceOptions& options, const ServedModel& m) {
  json out = json::array();
  for (const std::optional<Slot>& slot : m.scheduler.slots()) {
    json one{{"id", out.size()},
             {"n_ctx", options.context},
             {"speculative", m.engine.plan().method != SpeculationMethod::kNone},
             {"exact", !m.engine.plan().changes()},
             {"is_processing", slot.has_value()}};
    if (slot) describe_text(*slot, one);
    out.push_back(std::move(one));
  }
  return out;
}

json state_json(const ServedModel& m) {
  const SweepState now = m.scheduler.sweep();
  const Plan& plan = m.engine.plan();
  json trees = json::array();
  for (const CheckedTree& tree : now.last.trees) {
    json tokens = json::array();
    for (const TokenId token : tree.tokens) tokens.push_back(shown_token(m.tokenizer(), token));
    trees.push_back({{"text", tree.text},
                     {"parents", tree.parents},
                     {"tokens", std::move(tokens)},
                     {"path", tree.path},
                     {"next", shown_token(m.tokenizer(), tree.next)}});
  }
  const SweepReport& last = now.last;
  const LinkReport& link = last.link;
  return {{"sweep",
           {{"running", now.running},
            {"count", now.sweeps},
            {"tokens", now.tokens},
            {"layer", now.layer},
            {"layers", now.layers}}},
          {"last",
           {{"seconds", last.time.count()},
            {"compute_seconds", last.compute.count()},
            {"drafting_seconds", last.drafting.count()},
            {"texts", last.texts},
            {"tokens", last.tokens},
            {"prompt_rows", last.prompt_rows},
            {"tree_nodes", last.tree_nodes},
            {"link",
             {{"disk_bytes", link.disk_bytes},
              {"upload_bytes", link.upload_bytes},
              {"expert_hits", link.expert_hits},
              {"expert_misses", link.expert_misses},
              {"busy_seconds", (plan.device ? link.upload_busy : link.busy).count()},
              {"stall_seconds", link.stall.count()}}},
            {"trees", std::move(trees)}}},
          {"pool",
           {{"bytes", last.pool.bytes},
            {"weights", last.pool.weights},
            {"texts", last.pool.texts},
            {"resident_bytes", last.pool.resident},
            {"units_evicted", last.pool.evicted},
            {"units_returned", last.pool.returned}}},
          {"texts", {{"all", m.scheduler.texts()}, {"most_sharing", plan.max_sequences}}},
          {"kv",
           {{"blocks", plan.kv_blocks}, {"free", now.free_kv_blocks}, {"block_tokens", kKvBlock}}}};
}

std::string metrics_text(const ServedModel& m) {
  const SweepState sweep = m.scheduler.sweep();
  const Plan& plan = m.engine.plan();
  Gauges now;
  now.texts = m.scheduler.texts();
  now.running = std::min(now.texts, plan.max_sequences);
  now.kv_blocks = plan.kv_blocks;
  now.free_kv_blocks = sweep.free_kv_blocks;
  now.pool = sweep.last.pool;
  now.resident_bytes = now.pool.bytes > 0 ? now.pool.resident : plan.resident_bytes;
  now.tier = plan.device ? "gpu" : "host";
  for (const RankPlace& rank : m.engine.ranks()) now.hosts.push_back(rank.host);
  for (const LedgerEntry& entry : plan.ledger) now.memory[entry.what] += entry.bytes;
  if (plan.device)
    for (const LedgerEntry& entry : plan.device->ledger)
      now.memory["gpu: " + entry.what] += entry.bytes;
  return m.metrics.text(now);
}

}  // namespace canopy::server
