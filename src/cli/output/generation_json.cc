#include "src/cli/output/generation_json.h"

#include <nlohmann/json.hpp>

#include "src/cluster/cluster.h"
#include "src/machine/process_memory.h"
#include "src/text/stop_strings.h"

namespace canopy::cli {

using nlohmann::json;

namespace {

json logprobs_json(const Tokenizer& tokenizer, const TokenReport& report) {
  const auto entry = [&](const TokenLogprob& t) {
    json out{{"id", t.token}, {"logprob", t.logprob}};
    if (tokenizer.is_special(t.token)) {  // it has a name, and no text
      out["token"] = tokenizer.token_string(t.token);
      out["bytes"] = nullptr;
      return out;
    }
    const std::string_view piece = tokenizer.piece(t.token);
    out["token"] = piece;
    out["bytes"] = json::array();
    for (const char byte : piece) out["bytes"].push_back(static_cast<unsigned char>(byte));
    return out;
  };
  json out = entry(report.chosen);
  out["top_logprobs"] = json::array();
  for (const TokenLogprob& t : report.top) out["top_logprobs"].push_back(entry(t));
  return out;
}

json placement_json(const Placement& placement) {
  return {{"threads", placement.threads},
          {"cpus", placement.cpus.empty() ? json() : json(placement.cpus)},
          {"numa_node", placement.numa_node ? json(*placement.numa_node) : json()},
          {"note", placement.note}};
}

}  // namespace

json text_json(const Tokenizer& tokenizer, const TextReport& report,
               const std::vector<std::string>& stops) {
  json out{{"text", shown_text(tokenizer, report.tokens, stops, report.finish_reason != "stop")},
           {"tokens", report.tokens},
           {"finish_reason", report.finish_reason},
           {"cached_tokens", report.cached_tokens}};
  if (report.logprobs.empty()) return out;
  out["logprobs"] = json::array();
  for (const TokenReport& token : report.logprobs)
    out["logprobs"].push_back(logprobs_json(tokenizer, token));
  return out;
}

json steps_json(const TextReport& report) {
  json out{{"step_tokens", report.step_tokens}, {"step_seconds", json::array()}};
  for (const Seconds end : report.step_ends) out["step_seconds"].push_back(end.count());
  return out;
}

/// A step's parts as they were predicted, and as they were on the mean of those after the first.
json prediction_json(const Plan& plan, const BatchReport& report) {
  if (!plan.prediction) return json();
  const Candidate& c = plan.prediction->best;
  json out{{"predicted",
            {{"seconds_per_token", c.per_token().count()},
             {"seconds_per_step", c.cost.step.count()},
             {"tokens_per_step", c.tokens * c.sequences},
             {"link_seconds", c.cost.link.count()},
             {"compute_seconds", c.cost.compute.count()},
             {"draft_seconds", c.cost.draft.count()},
             {"bottleneck", name(c.cost.bottleneck)}}}};
  if (const int steps = report.sweeps - 1; steps > 0)
    out["measured"] = {
        {"seconds_per_token", report.decode.count() / std::max(1, report.decode_tokens)},
        {"seconds_per_step", report.decode.count() / steps},
        {"tokens_per_step", static_cast<double>(report.decode_tokens) / steps},
        {"link_seconds", report.link.busy.count() / steps},
        {"compute_seconds", report.compute.count() / steps},
        {"draft_seconds", report.drafting.count() / steps}};
  return out;
}

json shapes_json(const BatchReport& report) {
  json out = json::array();
  for (const ShapeUsed& shape : report.shapes)
    out.push_back({{"from_sweep", shape.from_sweep},
                   {"tree_size", shape.size},
                   {"tree_depth", shape.levels}});
  return out;
}

namespace {

/// Null where there is nothing to divide by.
json per(double sum, double count) { return count > 0 ? json(sum / count) : json(); }

json ledger_json(const std::vector<LedgerEntry>& entries) {
  json ledger = json::object();
  for (const LedgerEntry& entry : entries) ledger[entry.what] = entry.bytes;
  return ledger;
}

json pool_json(const Plan& plan, const PoolReport& pool) {
  if (pool.bytes == 0) return {};
  return {{"bytes", pool.bytes},
          {"weights", pool.weights},
          {"texts", pool.texts},
          {"resident_bytes", pool.resident},
          {"resident_bytes_when_full", plan.full_resident_bytes},
          {"sweep_bytes_when_full", plan.full_sweep_bytes},
          {"units_evicted", pool.evicted},
          {"units_returned", pool.returned}};
}

json plan_json(const Engine& engine) {
  const Plan& plan = engine.plan();
  const bool heads = plan.draft && plan.draft->has_heads();
  return {{"spec", name(plan.method)},
          {"model_free_draft", plan.draft && !heads ? json(plan.draft->name()) : json()},
          {"medusa_heads", heads ? json(plan.draft->levels()) : json()},
          {"max_sequences", plan.max_sequences},
          {"tree_size", plan.policy.shape.size()},
          {"tree_depth", plan.policy.shape.levels()},
          {"resident_layers", plan.resident_layers},
          {"resident_bytes", plan.resident_bytes},
          {"ring_layers", plan.ring_layers},
          {"ring_bytes", plan.ring_bytes},
          {"sweep_bytes", plan.sweep_bytes},
          {"pool", pool_json(plan, engine.pool())},
          {"memory_bytes", plan.memory},
          {"planned_bytes", plan.total()},
          {"placement", placement_json(engine.placement())},
          {"ledger", ledger_json(plan.ledger)}};
}

json experts_json(const Plan& plan, const LinkReport& link) {
  const ExpertReads& experts = plan.weights.experts;
  const auto asked = static_cast<double>(link.expert_hits + link.expert_misses);
  return {{"stay", experts.stay},
          {"of", experts.layers * experts.count},
          {"hits", link.expert_hits},
          {"misses", link.expert_misses},
          {"hit_rate", per(static_cast<double>(link.expert_hits), asked)}};
}

json device_json(const Plan::DevicePart& device, const BatchReport& report) {
  const auto bytes = static_cast<double>(report.link.upload_bytes);
  return {{"memory_bytes", device.memory},
          {"planned_bytes", device.total()},
          {"ledger", ledger_json(device.ledger)},
          {"upload_bytes", device.upload_bytes},
          {"host_bytes", device.host_bytes},
          {"bytes_per_token", per(bytes, report.decode_tokens)},
          {"bytes_per_second", per(bytes, report.link.upload_busy.count())}};
}

json ranks_json(const Cluster& ranks) {
  json waited = json::array(), by_rank = json::array();
  for (const Seconds time : ranks.totals().waited) waited.push_back(time.count());
  for (int rank = 0; rank < ranks.share().ranks(); ++rank) {
    const RankFigures& figures = ranks.figures()[static_cast<std::size_t>(rank)];
    by_rank.push_back({{"host", ranks.host(rank)},
                       {"disk_bytes", figures.disk_bytes},
                       {"link_busy_seconds", figures.link_busy.count()},
                       {"stalled_seconds", figures.stalled.count()},
                       {"waited_seconds", figures.waited.count()},
                       {"seconds", figures.elapsed.count()}});
  }
  return {{"shares", ranks.share().parts},
          {"by_rank", std::move(by_rank)},
          {"exchanges", ranks.totals().exchanges},
          {"bytes_sent", ranks.totals().bytes_sent},
          {"waited_seconds", waited},
          {"latency_seconds", ranks.speed().latency.count()},
          {"bytes_per_second", ranks.speed().bytes_per_second}};
}

}  // namespace

json costs_json(const Engine& engine, const BatchReport& report) {
  const Plan& plan = engine.plan();
  const LinkSample& probe = engine.link_probe();
  const auto link_bytes = static_cast<double>(report.link.disk_bytes);
  const auto share_of_decode = [&](Seconds time) {
    return plan.resident ? json() : per(time.count(), report.decode.count());
  };
  json out{{"device", engine.device_name()},
           {"exact", !plan.changes()},
           {"steps", report.sweeps},
           {"tokens_per_step", per(report.tokens, report.sweeps)},
           {"seconds",
            {{"load", engine.load_time().count()},
             {"prefill", report.prefill.count()},
             {"decode", report.decode.count()}}},
           {"seconds_per_token", per(report.decode.count(), report.decode_tokens)},
           {"bytes_read", engine.disk_bytes()},
           {"bytes_per_token", per(link_bytes, report.decode_tokens)},
           {"link_bytes_per_second", per(link_bytes, report.decode.count())},
           {"link_probe",
            {{"bytes_per_second", probe.bytes > 0 ? json(probe.bytes_per_second()) : json()},
             {"read_bytes", probe.read_bytes},
             {"queue_depth", probe.queue_depth}}},
           {"link_busy", share_of_decode(report.link.busy)},
           {"stalled", share_of_decode(report.link.stall)},
           {"checksums",
            report.link.checksums.count() > 0 ? share_of_decode(report.link.checksums) : json()},
           {"peak_memory_bytes", peak_resident_memory()},
           {"plan", plan_json(engine)},
           {"step", prediction_json(plan, report)},
           {"shapes", shapes_json(report)},
           {"notes", engine.notes()}};
  if (const auto changes = plan.changes()) out["changes"] = *changes;
  if (plan.device) {
    out["gpu"] = device_json(*plan.device, report);
    out["gpu"]["link_busy"] = share_of_decode(report.link.upload_busy);
  }
  if (plan.expert_slots > 0) out["experts"] = experts_json(plan, report.link);
  if (const Cluster* const ranks = engine.cluster()) out["ranks"] = ranks_json(*ranks);
  if (const std::string& small = engine.models().target.config().inflated_from; !small.empty())
    out["inflated_from"] = small;
  return out;
}

}  // namespace canopy::cli
