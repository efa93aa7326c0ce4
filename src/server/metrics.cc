#include "src/server/metrics.h"

#include <algorithm>
#include <sstream>

namespace canopy::server {

namespace {

std::string number(double value) {
  std::ostringstream text;
  text.precision(12);
  text << value;
  return text.str();
}

void head(std::string& out, const std::string& name, const char* type, const char* help) {
  out.append("# HELP canopy_").append(name).append(" ").append(help);
  out.append("\n# TYPE canopy_").append(name).append(" ").append(type).append("\n");
}

void line(std::string& out, const std::string& name, double value, const std::string& labels = {}) {
  out.append("canopy_").append(name);
  if (!labels.empty()) out.append("{").append(labels).append("}");
  out.append(" ").append(number(value)).append("\n");
}

void metric(std::string& out, const std::string& name, const char* type, const char* help,
            double value) {
  head(out, name, type, help);
  line(out, name, value);
}

void histogram(std::string& out, const std::string& name, const char* help, const Histogram& of) {
  head(out, name, "histogram", help);
  of.write(out, name);
}

std::string label(const char* name, const std::string& value) {
  std::string out = std::string(name) + "=\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace

void Histogram::observe(double value, std::uint64_t times) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<std::size_t>(at)] += times;
  sum_ += value * static_cast<double>(times);
}

void Histogram::write(std::string& out, const std::string& name) const {
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    line(out, name + "_bucket", static_cast<double>(below),
         label("le", i < bounds_.size() ? number(bounds_[i]) : "+Inf"));
  }
  line(out, name + "_sum", sum_);
  line(out, name + "_count", static_cast<double>(below));
}

void Metrics::swept(const SweepReport& sweep) {
  const std::lock_guard lock(mutex_);
  sweep_.observe(sweep.time.count());
  texts_.observe(sweep.texts);
  if (sweep.tokens > 0) tokens_.observe(sweep.tokens);
  disk_bytes_ += sweep.link.disk_bytes;
  upload_bytes_ += sweep.link.upload_bytes;
  expert_hits_ += sweep.link.expert_hits;
  expert_misses_ += sweep.link.expert_misses;
  disk_busy_ += sweep.link.busy.count();
  upload_busy_ += sweep.link.upload_busy.count();
  stall_ += sweep.link.stall.count();
  ranks_.resize(sweep.ranks.size());
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) ranks_[rank] += sweep.ranks[rank];
  prompt_tokens_ += static_cast<std::uint64_t>(sweep.prompt_tokens);
  cached_tokens_ += static_cast<std::uint64_t>(sweep.cached_tokens);
  generated_tokens_ += static_cast<std::uint64_t>(sweep.tokens);
  for (const CheckedTree& tree : sweep.trees) {
    if (tree.tokens.size() == 1) continue;  // decoding was plain
    ++drafts_;
    draft_tokens_ += tree.tokens.size() - 1;
    const std::size_t accepted = tree.path.size() - 1;
    if (accepted_at_.size() < accepted) accepted_at_.resize(accepted);
    for (std::size_t i = 0; i < accepted; ++i) ++accepted_at_[i];
  }
}

void Metrics::ended(const TextReport& text, const std::string& finish_reason) {
  const std::lock_guard lock(mutex_);
  ++ended_[finish_reason];
  const Seconds first = text.step_ends.front(), whole = text.step_ends.back();
  first_token_.observe(first.count());
  whole_.observe(whole.count());
  for (std::size_t i = 1; i < text.step_ends.size(); ++i)
    between_.observe((text.step_ends[i] - text.step_ends[i - 1]).count());
  if (text.tokens.size() > 1)
    per_token_.observe((whole - first).count() / static_cast<double>(text.tokens.size() - 1));
}

void Metrics::ended_early(const std::string& how, int texts) {
  const std::lock_guard lock(mutex_);
  ended_[how] += static_cast<std::uint64_t>(texts);
}

void Metrics::write_ranks(std::string& out, const std::vector<std::string>& hosts) const {
  const auto all = [&](const std::string& name, const char* help, const auto& value) {
    if (hosts.empty()) return;
    head(out, name, "counter", help);
    for (std::size_t rank = 0; rank < hosts.size(); ++rank)
      line(out, name, rank < ranks_.size() ? value(ranks_[rank]) : 0.0,
           label("rank", std::to_string(rank)) + "," + label("host", hosts[rank]));
  };
  all("rank_link_bytes_total", "Bytes of weights that a rank has read.",
      [](const RankFigures& rank) { return static_cast<double>(rank.disk_bytes); });
  all("rank_link_busy_seconds_total", "Time in which a rank's link carried something.",
      [](const RankFigures& rank) { return rank.link_busy.count(); });
  all("rank_stall_seconds_total", "Time in which a rank's arithmetic waited for its link.",
      [](const RankFigures& rank) { return rank.stalled.count(); });
  all("rank_wait_seconds_total", "Time in which a rank waited for columns of the others.",
      [](const RankFigures& rank) { return rank.waited.count(); });
}

std::string Metrics::text(const Gauges& now) const {
  const std::lock_guard lock(mutex_);
  std::string out;
  const auto count = [](std::uint64_t value) { return static_cast<double>(value); };
  metric(out, "num_requests_running", "gauge", "Texts that share the sweeps.", now.running);
  metric(out, "num_requests_waiting", "gauge", "Texts that wait for a place.",
         now.texts - now.running);
  head(out, "request_success_total", "counter", "Texts that ended, by how they did.");
  for (const auto& [how, texts] : ended_)
    line(out, "request_success_total", count(texts), label("finished_reason", how));
  metric(out, "prompt_tokens_total", "counter", "Tokens of prompts that were read.",
         count(prompt_tokens_));
  metric(out, "prefix_cache_queries", "counter", "Tokens of prompts that were looked for.",
         count(prompt_tokens_));
  metric(out, "prefix_cache_hits", "counter", "Of these, tokens that were there already.",
         count(cached_tokens_));
  metric(out, "generation_tokens_total", "counter", "Tokens of texts.", count(generated_tokens_));
  histogram(out, "time_to_first_token_seconds", "From a request to its first token.", first_token_);
  histogram(out, "time_per_output_token_seconds", "Seconds per token after the first.", per_token_);
  histogram(out, "inter_token_latency_seconds", "Between two sweeps that a text gained tokens of.",
            between_);
  histogram(out, "e2e_request_latency_seconds", "From a request to its end.", whole_);
  histogram(out, "sweep_seconds", "One sweep over the model.", sweep_);
  histogram(out, "sequences_per_sweep", "Texts that shared a sweep.", texts_);
  histogram(out, "tokens_per_sweep", "Tokens that a sweep gained for all.", tokens_);
  metric(out, "spec_decode_num_drafts", "counter", "Trees that were checked.", count(drafts_));
  metric(out, "spec_decode_num_draft_tokens", "counter", "Their nodes behind the roots.",
         count(draft_tokens_));
  std::uint64_t accepted = 0;
  for (const std::uint64_t one : accepted_at_) accepted += one;
  metric(out, "spec_decode_num_accepted_tokens", "counter", "Draft tokens that were accepted.",
         count(accepted));
  head(out, "spec_decode_num_accepted_tokens_per_pos", "counter",
       "The same by their place behind the root.");
  for (std::size_t i = 0; i < accepted_at_.size(); ++i)
    line(out, "spec_decode_num_accepted_tokens_per_pos", count(accepted_at_[i]),
         label("position", std::to_string(i)));
  head(out, "link_bytes_total", "counter", "Bytes of weights that travelled.");
  line(out, "link_bytes_total", count(disk_bytes_), label("tier", "disk"));
  line(out, "link_bytes_total", count(upload_bytes_), label("tier", "gpu"));
  head(out, "link_busy_seconds_total", "counter", "Time in which the link carried something.");
  line(out, "link_busy_seconds_total", disk_busy_, label("tier", "disk"));
  line(out, "link_busy_seconds_total", upload_busy_, label("tier", "gpu"));
  metric(out, "stall_seconds_total", "counter", "Time in which arithmetic waited for the link.",
         stall_);
  write_ranks(out, now.hosts);
  head(out, "expert_requests_total", "counter",
       "Experts that sweeps asked layers of a mixture for, by where they were.");
  line(out, "expert_requests_total", count(expert_hits_), label("found", "memory"));
  line(out, "expert_requests_total", count(expert_misses_), label("found", "disk"));
  metric(out, "kv_cache_usage_perc", "gauge", "Share of the KV blocks that texts hold.",
         now.kv_blocks == 0 ? 0 : 1 - double(now.free_kv_blocks) / now.kv_blocks);
  metric(out, "kv_blocks", "gauge", "KV blocks.", now.kv_blocks);
  head(out, "resident_bytes", "gauge", "Weights that stay where they are computed with.");
  line(out, "resident_bytes", count(now.resident_bytes), label("tier", now.tier));
  if (now.pool.bytes > 0) {
    head(out, "pool_bytes", "gauge", "Memory that weights and texts share, by who has it.");
    line(out, "pool_bytes", count(now.pool.weights), label("of", "weights"));
    line(out, "pool_bytes", count(now.pool.texts), label("of", "texts"));
    line(out, "pool_bytes", count(now.pool.bytes - now.pool.weights - now.pool.texts),
         label("of", "nobody"));
    head(out, "pool_units_total", "counter",
         "Units of weights, or experts, that gave way to texts or came back.");
    line(out, "pool_units_total", count(now.pool.evicted), label("moved", "out"));
    line(out, "pool_units_total", count(now.pool.returned), label("moved", "in"));
  }
  head(out, "memory_bytes", "gauge", "What was planned, by lines of the ledger.");
  for (const auto& [what, bytes] : now.memory)
    line(out, "memory_bytes", count(bytes), label("what", what));
  return out;
}

}  // namespace canopy::server
