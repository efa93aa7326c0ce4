// bench_collect: a model's own greedy text and what its head read for each token: what Medusa
// heads are trained on.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/base/error.h"
#include "src/base/formats/half.h"
#include "src/base/json_text.h"
#include "src/checkpoint/fingerprint.h"
#include "src/checkpoint/medusa_heads.h"
#include "src/cli/interrupt.h"
#include "src/cli/options/length_options.h"
#include "src/cli/options/model/model_options.h"
#include "src/cli/options/prompt_file.h"
#include "src/cli/options/values.h"
#include "src/cli/output/progress_line.h"
#include "src/cli/program.h"
#include "src/convert/output.h"
#include "src/convert/weight_rows.h"
#include "src/measure/calibration_prompts.h"

namespace canopy::cli {

namespace {

constexpr const char* kUsage =
    "usage: bench_collect -m MODEL -o DIR [FLAG ...]\n\n"
    "Lets a model continue prompts at temperature 0 and writes, for each token of its text, the "
    "row "
    "of\n"
    "values that its head chose the token by: what bench/medusa/train.py trains heads on.\n\n"
    "  DIR/read.bf16    [positions, dim], one text behind another\n"
    "  DIR/tokens.i32   [positions]: what the head chose by each row\n"
    "  DIR/head.bf16    [vocab, dim]: the model's head\n"
    "  DIR/collected.json  the sizes, the positions of each text, the model's fingerprint";

struct Options {
  ModelOptions model;
  std::string output;
  std::optional<std::string> prompts;
  int positions = 100'000, new_tokens = 96, prompt_tokens = 32, parallel = 16;

  Flags flags() {
    Flags all, own("What is collected");
    own.add_options()                                                          //
        ("output,o", required(output, "DIR"), "the directory, which is made")  //
        ("positions", into(positions, "N", at_least("--positions", 1)),
         "so many rows at least, but where the prompts are used up")  //
        ("prompts", into(prompts, "FILE"),
         kPromptsHelp)  //
        ("prompt-tokens", into(prompt_tokens, "N", tokens_from(1, "--prompt-tokens")),
         "cut prompts to so many tokens")  //
        (kLengthFlag, into(new_tokens, "N", tokens_from(2, "--n-predict")),
         "tokens of each continuation")  //
        ("parallel", into(parallel, "N", at_least("--parallel", 1)),
         "texts that share a sweep, as far as memory goes");
    return all.add(own).add(model.flags());
  }
};

using Halves = std::vector<std::uint16_t>;  // bf16

void append(std::span<const float> values, Halves& to) {
  for (const float value : values) to.push_back(bf16_from_f32(value));
}

void write_head(const Checkpoint& model, const std::filesystem::path& file) {
  const ModelConfig& c = model.config();
  const TensorEntry& head = own_head(model);
  const auto dim = static_cast<std::size_t>(c.embedding_width());
  const std::uint64_t bytes = static_cast<std::uint64_t>(c.vocab) * dim * 2;
  OutputFile out(file, bytes);
  WeightRows source(model);
  std::vector<float> row(dim);
  Halves halves;
  for (std::int64_t i = 0; i < c.vocab; ++i) {
    source.read(head, i, row);
    halves.clear();
    append(row, halves);
    out.write(std::as_bytes(std::span(halves)));
  }
  out.finish_with("", bytes);
}

/// Keeps what texts that share sweeps show, by text, and writes it when one has ended.
class Collector {
 public:
  Collector(const std::filesystem::path& directory, const ModelConfig& config, std::size_t texts,
            std::uint64_t positions)
      : dim_(static_cast<std::size_t>(config.embedding_width())),
        rows_(directory / "read.bf16", positions * dim_ * 2),
        tokens_(directory / "tokens.i32", positions * 4),
        of_text_(texts) {}

  /// Bytes that it holds of `texts` texts that are written at once.
  static std::uint64_t bytes(const ModelConfig& config, int texts, int tokens) {
    constexpr std::uint64_t kWriters = std::uint64_t{2} << 20, kMore = 2;  // a vector's growth
    const std::uint64_t position =
        static_cast<std::uint64_t>(config.embedding_width()) * 2 + sizeof(TokenId);
    return kWriters + kMore * static_cast<std::uint64_t>(texts) *
                          static_cast<std::uint64_t>(tokens + 1) * position;
  }

  void take(std::size_t text, std::span<const float> rows, std::span<const TokenId> tokens) {
    OfText& of = of_text_[text];
    append(rows, of.rows);
    of.tokens.insert(of.tokens.end(), tokens.begin(), tokens.end());
  }
  /// A text may have gained more with its last step than was kept of it.
  void end(std::size_t text, std::size_t kept) {
    OfText& of = of_text_[text];
    require(kept <= of.tokens.size(), "a text has more tokens than were told of");
    rows_.write(std::as_bytes(std::span(of.rows).first(kept * dim_)));
    tokens_.write(std::as_bytes(std::span(of.tokens).first(kept)));
    texts_.push_back(kept);
    positions_ += kept;
    of = {};
  }
  void finish() {
    rows_.finish_with("", positions_ * dim_ * 2);
    tokens_.finish_with("", positions_ * sizeof(TokenId));
  }
  std::size_t positions() const { return positions_; }
  const std::vector<std::size_t>& texts() const { return texts_; }

 private:
  struct OfText {
    Halves rows;
    std::vector<TokenId> tokens;
  };
  std::size_t dim_, positions_ = 0;
  OutputFile rows_, tokens_;
  std::vector<OfText> of_text_;
  std::vector<std::size_t> texts_;
};

std::vector<Request> requests_of(const Options& asked, const Tokenizer& tokenizer,
                                 const std::stop_token& stop) {
  const std::vector<std::string> texts = texts_of(read_prompts(asked.prompts, stop));
  for (const std::string& text : texts)
    asked.model.require_room_to_encode(text, "a text of " + prompts_name(asked.prompts));
  const int whole_texts = (asked.positions - 1) / asked.new_tokens + 1;
  const int count = whole_texts + (whole_texts + 3) / 4;  // some end early
  std::vector<Request> requests;
  for (PromptCut& cut : cut_prompts(tokenizer, texts, count, asked.prompt_tokens)) {
    Request request;
    request.prompt = std::move(cut.tokens);
    request.max_new_tokens = asked.new_tokens;
    requests.push_back(std::move(request));
  }
  if (requests.empty())
    throw Error(prompts_name(asked.prompts) + ": there is no prompt of any token");
  return requests;
}

/// `before`: positions that were there when this engine's texts began.
std::string describe(const StepProgress& p, std::uint64_t before, std::uint64_t positions) {
  std::ostringstream line;
  line << before + static_cast<std::uint64_t>(p.total_tokens) << " of " << positions
       << " positions, layer " << std::min(p.layer + 1, p.layers) << "/" << p.layers;
  if (p.total_tokens > 0) {
    const double part = static_cast<double>(positions - before) / p.total_tokens;
    line << ", at most " << std::lround(std::max(p.since_start.count() * (part - 1), 0.0))
         << " s left";
  }
  return line.str();
}

/// Lets the engine write, and the collector take, until it has `positions` positions or there are
/// no more requests: as many texts at a time as would do if none ended early. Throws Stopped.
void collect(Engine& engine, std::span<const Request> requests, std::uint64_t positions,
             Collector& collector, ProgressLine& progress, const std::stop_token& stop) {
  std::size_t first = 0;
  std::uint64_t before = 0;
  int shown = -1;
  GenerateEvents events;
  events.on_read = [&](std::size_t text, std::span<const float> rows,
                       std::span<const TokenId> tokens) {
    collector.take(first + text, rows, tokens);
  };
  events.on_text = [&](std::size_t text, const TextReport& report) {
    collector.end(first + text, report.tokens.size());
  };
  events.on_step = [&](const StepProgress& p) {
    if (p.step == shown && !progress.wants_glimpse()) return;
    shown = p.step;
    progress.show(describe(p, before, positions));
  };
  while (first < requests.size() && before < positions) {
    const auto tokens = static_cast<std::uint64_t>(requests[first].max_new_tokens);
    const std::size_t texts =
        std::min<std::size_t>((positions - before - 1) / tokens + 1, requests.size() - first);
    engine.generate(requests.subspan(first, texts), events, stop);
    if (stop.stop_requested()) throw Stopped();
    first += texts;
    before = collector.positions();
  }
  collector.finish();
}

int run_collect(const std::vector<std::string>& words) {
  Options asked;
  if (!parse(words, kUsage, asked.flags())) return 0;
  EngineOptions options = asked.model.engine_options();
  const Interrupt interrupt;
  ModelFiles models = open_models(asked.model.model, "", {}, asked.model.holes());
  const ModelConfig config = models.target.config();
  const std::vector<Request> requests = requests_of(asked, *models.tokenizer, interrupt.token());
  PlanRequest& plan = options.plan;
  plan.method = SpeculationMethod::kNone;
  plan.max_prompt = asked.prompt_tokens;
  plan.context = asked.prompt_tokens + asked.new_tokens;
  plan.max_sequences = asked.parallel;
  plan.reserved_bytes = Collector::bytes(config, asked.parallel, asked.new_tokens);
  const std::string own_fingerprint = source_fingerprint(models.target);

  const auto positions = static_cast<std::uint64_t>(asked.positions);
  const std::uint64_t most = positions + static_cast<std::uint64_t>(asked.new_tokens);
  const auto row = static_cast<std::uint64_t>(config.embedding_width()) * 2;
  StagedOutput staged(asked.output, StagedOutput::Kind::kDirectory,
                      (most + static_cast<std::uint64_t>(config.vocab)) * row);
  write_head(models.target, staged.partial() / "head.bf16");
  ProgressLine progress(asked.model.progress);
  Engine engine(
      std::move(models), options,
      [&](std::uint64_t done, std::uint64_t all) { progress.show_loading(done, all); },
      interrupt.token());
  progress.clear();
  print_notes(engine);

  Collector collector(staged.partial(), config, requests.size(), most);
  collect(engine, requests, positions, collector, progress, interrupt.token());
  nlohmann::ordered_json about{{"model", own_fingerprint},
                               {"dim", config.embedding_width()},
                               {"vocab", config.vocab},
                               {"positions", collector.positions()},
                               {"texts", collector.texts()}};
  write_text_file(staged.partial() / "collected.json", json_text(about, 1) + "\n");
  staged.publish();
  progress.clear();
  std::cout << asked.output << ": " << collector.positions() << " positions of "
            << collector.texts().size() << " texts\n";
  return 0;
}

}  // namespace
}  // namespace canopy::cli

int main(int argc, char** argv) {
  return canopy::cli::run_program("bench_collect", {argv + 1, argv + argc},
                                  canopy::cli::run_collect);
}
