// canopy bench offload: what steps of a model's shape cost where it does not fit, without its
// weights.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "planner/acceptance.h"
#include "src/base/ambient.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/json_text.h"
#include "src/base/size_text.h"
#include "src/cli/commands/commands.h"
#include "src/cli/interrupt.h"
#include "src/cli/options/length_options.h"
#include "src/cli/options/model/model_options.h"
#include "src/cli/options/model/model_shape.h"
#include "src/cli/options/model/profile.h"
#include "src/cli/options/speculation_options.h"
#include "src/cli/options/values.h"
#include "src/cli/output/energy_json.h"
#include "src/cli/output/progress_line.h"
#include "src/cli/output/standard_output.h"
#include "src/cli/output/table.h"

namespace canopy::cli {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* kUsage =
    "usage: canopy bench offload [-m SHAPE -md SHAPE] [FLAG ...]\n\n"
    "SYNTHETIC. Runs steps of models with random weights that do not fit: what is moved and\n"
    "computed is what the real ones would need, the text is noise, and the accepted tokens are\n"
    "those expected of an acceptance vector. On a GPU weights come from host memory, on the CPU\n"
    "from disk. All layers share one layer's bytes of a file in --dir and, but for --own-bytes,\n"
    "of host memory; each travels by itself.\n"
    "A row is printed when it ends; one that fails says why, the others run all the same.";

/// Folder of the random weights while they are needed.
class Folder {
 public:
  explicit Folder(const std::string& where) {
    std::string pattern = (fs::path(where) / "canopy-offload-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw Error("cannot make a folder in " + where);
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

struct Options {
  std::optional<std::string> target, draft;  // shapes
  std::optional<std::vector<int>> tree_sizes;
  int tree_depth = 22, steps = 5, prompt_tokens = 128;
  float temperature = 0.6f;
  std::optional<std::string> acceptance, profile;  // files
  DeviceOptions device;
  std::optional<std::uint64_t> memory, host_memory, resident;
  bool from_disk = false, own_bytes = false, jsonl = false, progress = false;
  int threads = 0;
  std::string dir = fs::temp_directory_path().string();

  Flags flags();
};

Flags Options::flags() {
  const auto sizes = [](const std::string& flag, const std::string& text) {
    return parse_numbers(flag, text, 1, 1024);
  };
  Flags all("Flags");
  const std::string shapes =
      "the target: " + shape_names() +
      ", or a config.json; with :packed or :levels (canopy pack), :q8_0, :q4_0, :q4_1, :q4_k, "
      ":q6_k or :mxfp4 "
      "behind "
      "it in that form (default: llama-2-70b on a GPU, smollm2-1.7b on the CPU)";
  all.add_options()                                                               //
      ("model,m", into(target, "SHAPE"), shapes.c_str())                          //
      ("model-draft", into(draft, "SHAPE"),                                       //
       "-md: the draft (default: llama-2-7b on a GPU, smollm2-135m on the CPU)")  //
      ("tree-sizes", into(tree_sizes, "LIST", "--tree-sizes", sizes),             //
       "trees to run, 1 being plain offloading; each has the best depth for the vector (default: "
       "1,64,256,768 on a GPU, 1,16,64 on the CPU)")                           //
      ("tree-depth", into(tree_depth, "LEVELS", at_least("--tree-depth", 1)),  //
       "most levels of a tree, the root's included")                           //
      ("steps", into(steps, "N", at_least("--steps", 1)),                      //
       "of each, after the prompt")                                            //
      ("prompt-tokens", into(prompt_tokens, "N", tokens_from(1, "--prompt-tokens")),
       "of the prompt")                                //
      ("temp", into(temperature, "T"), "temperature")  //
      ("acceptance", into(acceptance, "FILE"),
       "an acceptance file, or a JSON list p(1), p(2), ... (default: a self-draft's)")          //
      ("device", into(device.device, "D"),                                                      //
       "auto (a GPU, if there is one), cpu, cuda or cuda:N")                                    //
      ("gpu-memory", into(device.gpu_memory, "SIZE", "--gpu-memory", parse_budget_above_zero),  //
       "the run behaves as on a GPU of this size (default: all that is free)")                  //
      ("enforce-eager", given(device.enforce_eager),                                            //
       "launch the draft's kernels one by one, instead of a CUDA graph for each level")         //
      ("memory", into(memory, "SIZE", "--memory", parse_budget),                                //
       "bound on the process (default: 80% of the free memory)")                                //
      ("host-memory", into(host_memory, "SIZE", "--host-memory", parse_budget), "the same")     //
      ("resident", into(resident, "SIZE", "--resident", parse_budget),
       "target weights that stay where they are computed with (default: on a GPU what fits, on the "
       "CPU none)")  //
      ("from-disk", given(from_disk),
       "what does not stay is read from disk in every sweep, even where host memory would hold it; "
       "always so on the CPU")  //
      ("own-bytes", given(own_bytes),
       "each of the target's layers has bytes of its own in host memory, as a model's have, though "
       "not its experts")  //
      ("threads,t", into(threads, "N", at_least("--threads", 0)),
       "compute threads (0: one per physical core)")  //
      ("profile", into(profile, "FILE"),
       "predict by this profile, too")  //
      ("dir", into(dir, "FOLDER"),
       "where a layer's weights, the embedding and the head lie while this runs")  //
      ("jsonl", given(jsonl),
       "print a JSON object per row, with every step, in a line of its own")  //
      ("progress", given(progress), kProgressHelp);
  return all;
}

struct Pair {
  std::string target, draft;
};

/// Settings that every row has in common. Throws UsageError before anything is written or run.
struct Wanted {
  Pair names;
  std::vector<int> sizes;
  LayerBytes layers = LayerBytes::kShared;  // of the target
  EngineOptions options;

  explicit Wanted(const Options& asked) {
    options.device = asked.device.choose();
    options.device.threads = asked.threads;
    const bool gpu = options.device.kind == "cuda";
    if (asked.target.has_value() != asked.draft.has_value())
      throw UsageError("--model, --model-draft: one shape needs the other");
    names = gpu ? Pair{"llama-2-70b", "llama-2-7b"} : Pair{"smollm2-1.7b", "smollm2-135m"};
    if (asked.target) names = {*asked.target, *asked.draft};
    sizes = asked.tree_sizes.value_or(gpu ? std::vector{1, 64, 256, 768} : std::vector{1, 16, 64});
    options.graphs = !asked.device.enforce_eager;

    PlanRequest& plan = options.plan;
    plan.temperature = static_cast<double>(asked.temperature);
    plan.max_prompt = asked.prompt_tokens;
    plan.context = plan.max_prompt + (asked.steps + 2) * 32;
    plan.from_disk = !gpu || asked.from_disk;
    if (asked.memory && asked.host_memory)
      throw UsageError("--host-memory: is the same as --memory; give one of them");
    plan.memory = asked.memory.value_or(asked.host_memory.value_or(0));
    note_beyond_machine(plan.memory);
    plan.resident = asked.resident;
    if (!gpu && !plan.resident) plan.resident = 0;
    if (asked.own_bytes && plan.from_disk && !plan.resident.value_or(0))
      throw UsageError(
          "--own-bytes: is of host memory, and all weights come from disk; --resident SIZE keeps "
          "some");
    if (asked.own_bytes) layers = LayerBytes::kOwnInMemory;
  }
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class OffloadBench {
 public:
  OffloadBench(const Options& asked, const Interrupt& interrupt)
      : request_(asked),
        steps_(asked.steps),
        depth_(asked.tree_depth),
        temperature_(asked.temperature),
        stop_(interrupt.token()),
        progress_(asked.progress),
        acceptance_(asked.acceptance ? read_acceptance(*asked.acceptance)
                                     : default_acceptance(request_.options.plan.temperature)),
        vector_(asked.acceptance.value_or("a self-draft's (SmolLM2-135M, Q4_0)")),
        shapes_{parse_model_shape(request_.names.target), parse_model_shape(request_.names.draft)} {
    require_same_vocabulary(shapes_[0].shape, shapes_[1].shape);
    if (asked.profile) cost_ = std::make_shared<CostModel>(read_profile(*asked.profile));
    folder_.emplace(asked.dir);
    target_.emplace(write(shapes_[0], request_.layers, folder_->path() / "target"));
    draft_.emplace(write(shapes_[1], LayerBytes::kShared, folder_->path() / "draft"));
  }

  const std::vector<int>& sizes() const { return request_.sizes; }

  std::string label() const {
    const bool gpu = request_.options.device.kind == "cuda";
    return std::string("SYNTHETIC: random weights, every layer ") +
           (request_.layers == LayerBytes::kShared ? "the same bytes of " : "its own bytes of ") +
           (gpu && !request_.options.plan.from_disk
                ? "host memory"
                : "a file (a drive with a cache of its own may hold them)") +
           "; tokens per step expected of " + vector_;
  }

  /// Describes what was run, and where: in every row, so that a row stands by itself.
  json facts() const {
    return {{"label", label()},
            {"target", request_.names.target},
            {"draft", request_.names.draft},
            {"temperature", temperature_},
            {"prompt_tokens", request_.options.plan.max_prompt},
            {"date", today()},
            {"version", CANOPY_VERSION}};
  }

  /// Describes what is known before it runs: a failed row has this, and the reason.
  json row_of(int size) const {
    json row = facts();
    row["tree_size"] = size;
    return row;
  }

  void run(int size, json& row) {
    const EngineOptions options = options_for(size);
    const TreeShape& shape = *options.plan.shape;
    row["tree_depth"] = shape.levels();
    row["tokens_per_step"] = expected_tokens(shape, acceptance_);
    Engine engine(
        {*target_, *draft_, no_tokenizer(target_->config().vocab)}, options,
        [&](std::uint64_t done, std::uint64_t all) { progress_.show_loading(done, all); }, stop_);
    progress_.clear();
    print_notes(engine);
    row["device"] = engine.device_name();
    add_plan(row, engine.plan());
    Joules used;  // by all steps but the first
    const std::vector<StepProgress> steps = run_steps(engine, options, shape.size(), used);
    add_steps(row, engine, steps);
    const double tokens =
        static_cast<double>(steps.size() - 1) * expected_tokens(shape, acceptance_);
    row["joules_per_token"] = joules_per_token(used, tokens);
    row["energy_missing"] = energy_.missing();
  }

 private:
  Checkpoint write(const RandomModel& shape, LayerBytes layers, const fs::path& file) {
    Checkpoint made = write_random_checkpoint(
        shape, layers, file,
        [&](std::uint64_t done, std::uint64_t all) {
          if (progress_.wants_glimpse() || done == all)
            progress_.show("random weights: " + format_size(done) + " of " + format_size(all));
        },
        stop_);
    progress_.clear();
    return made;
  }

  EngineOptions options_for(int size) {
    EngineOptions options = request_.options;
    PlanRequest& plan = options.plan;
    plan.acceptance = acceptance_;
    plan.shape = best_tree(size, std::min(size, depth_), acceptance_);
    plan.method = size == 1 ? SpeculationMethod::kNone : SpeculationMethod::kSequoia;
    plan.cost = cost_;
    options.energy = &energy_;
    return options;
  }

  /// Runs the steps after the prompt's, and returns each as it ended.
  std::vector<StepProgress> run_steps(Engine& engine, const EngineOptions& options, int nodes,
                                      Joules& used) {
    std::vector<TokenId> prompt;
    for (int i = 0; i < options.plan.max_prompt; ++i)
      prompt.push_back(i * 7919 % target_->config().vocab);
    Request request;
    request.prompt = prompt;
    request.sampling.temperature = temperature_;
    request.max_new_tokens = options.plan.context - options.plan.max_prompt;
    request.ignore_end = true;
    // Steps, not tokens, are wanted: it is stopped after the last.
    std::stop_source enough;
    const std::stop_callback forward(stop_, [&] { enough.request_stop(); });
    std::vector<StepProgress> done;
    GenerateEvents events;
    events.on_step = [&](const StepProgress& step) {
      progress_.show("trees of " + std::to_string(nodes) + " nodes: step " +
                     std::to_string(step.step) + " of " + std::to_string(steps_ + 1));
      if (step.new_tokens == 0) return;
      done.push_back(step);
      if (step.step > steps_) enough.request_stop();
    };
    used = engine.generate({&request, 1}, events, enough.get_token(), acceptance_).decode_energy;
    progress_.clear();
    if (stop_.stop_requested()) throw Stopped();
    return done;
  }

  /// Medians over the steps; the first one, with the prompt, stands apart.
  static void add_steps(json& row, const Engine& engine, const std::vector<StepProgress>& steps) {
    const bool uploads = engine.plan().device.has_value();
    row["link"] = uploads ? "to the GPU" : "from disk";
    row["prefill_seconds"] = steps.front().time.count();
    std::vector<double> seconds, compute, drafting;
    double bytes = 0, busy = 0, disk = 0, all = 0;
    row["steps"] = json::array();
    for (const StepProgress& step : std::span(steps).subspan(1)) {
      const LinkReport& link = step.link;
      const double moved = static_cast<double>(uploads ? link.upload_bytes : link.disk_bytes);
      const double moving = (uploads ? link.upload_busy : link.busy).count();
      seconds.push_back(step.time.count());
      compute.push_back(step.compute.count());
      drafting.push_back(step.drafting.count());
      row["steps"].push_back({{"seconds", step.time.count()},
                              {"compute_seconds", step.compute.count()},
                              {"draft_seconds", step.drafting.count()},
                              {"link_bytes", moved},
                              {"link_busy_seconds", moving},
                              {"stall_seconds", link.stall.count()},
                              {"drawn_tokens", step.new_tokens}});
      bytes += moved;
      busy += moving;
      disk += static_cast<double>(link.disk_bytes);
      all += step.time.count();
    }
    const double n = std::max(1.0, static_cast<double>(seconds.size()));
    row["seconds_per_step"] = median(seconds);
    row["seconds_per_token"] = median(seconds) / row["tokens_per_step"].get<double>();
    row["compute_seconds"] = median(compute);
    row["draft_seconds"] = median(drafting);
    row["link_bytes_per_step"] = bytes / n;
    row["link_bytes_per_second"] = busy > 0 ? json(bytes / busy) : json();
    row["link_busy"] = busy / all;
    row["disk_bytes_per_step"] = disk / n;
  }

  static void add_plan(json& row, const Plan& plan) {
    row["resident_layers"] = plan.resident_layers;
    row["ring_layers"] = plan.ring_layers;
    if (plan.device) row["planned_gpu_bytes"] = plan.device->total();
    row["planned_host_bytes"] = plan.total();
    if (!plan.prediction) return;
    const Candidate& best = plan.prediction->best;
    row["predicted"] = {{"seconds_per_step", best.cost.step.count()},
                        {"seconds_per_token", best.per_token().count()},
                        {"tokens_per_step", best.tokens},
                        {"link_seconds", best.cost.link.count()},
                        {"compute_seconds", best.cost.compute.count()},
                        {"draft_seconds", best.cost.draft.count()},
                        {"bottleneck", name(best.cost.bottleneck)}};
  }

  const Wanted request_;
  const int steps_, depth_;
  const float temperature_;
  const std::stop_token stop_;
  ProgressLine progress_;
  const Acceptance acceptance_;
  const std::string vector_;
  const std::array<RandomModel, 2> shapes_;  // target, draft
  std::optional<Folder> folder_;
  std::optional<Checkpoint> target_, draft_;
  std::shared_ptr<const CostModel> cost_;
  EnergyMeter energy_;
};

const Table& table() {
  static const Table table({{.head = "nodes", .width = 6, .before = ""},
                            {.head = "depth", .width = 6},
                            {.head = "resident", .width = 9},
                            {.head = "tok/step", .width = 9},
                            {.head = "s/step", .width = 9},
                            {.head = "s/token", .width = 9},
                            {.head = "busy", .width = 6},
                            {.head = "GB/s", .width = 7},
                            {.head = "compute s", .width = 10},
                            {.head = "draft s", .width = 8},
                            {.head = "predicted", .width = 10}});
  return table;
}

std::string text_row(const json& row) {
  static const Table failed(
      {{.head = "", .width = 6, .before = ""},
       {.head = "", .width = 0, .align = Align::kLeft, .before = "  failed: "}});
  if (row.contains("error"))
    return failed.row({figure(row, "tree_size", 0), row["error"].get<std::string>()});
  const json predicted = row.value("predicted", json::object());
  const json& shown = row.contains("seconds_per_step") ? row : predicted;
  return table().row({figure(row, "tree_size", 0), figure(row, "tree_depth", 0),
                      figure(row, "resident_layers", 1), figure(row, "tokens_per_step", 2),
                      figure(shown, "seconds_per_step", 3), figure(shown, "seconds_per_token", 3),
                      figure(row, "link_busy", 2), figure(row, "link_bytes_per_second", 2, 1e-9),
                      figure(shown, "compute_seconds", 3), figure(shown, "draft_seconds", 3),
                      figure(predicted, "seconds_per_token", 3)});
}

}  // namespace

int run_bench_offload(const std::vector<std::string>& words) {
  Options asked;
  if (!parse(words, kUsage, asked.flags())) return 0;
  const Interrupt interrupt;
  int failed = 0;
  bool begun = false;
  OffloadBench bench(asked, interrupt);
  for (const int size : bench.sizes()) {
    json row = bench.row_of(size);
    try {
      bench.run(size, row);
    } catch (const Stopped&) {
      throw;
    } catch (const std::exception& e) {
      row["error"] = e.what();
      ++failed;
    }
    if (asked.jsonl) {
      std::cout << json_text(row) << "\n";
    } else {
      if (!begun) std::cout << bench.label() << "\n" << table().head();
      std::cout << text_row(row);
    }
    begun = true;
    flush_out();
  }
  if (failed > 0) std::cerr << "canopy bench offload: " << failed << " of the rows failed\n";
  return failed > 0 ? 1 : 0;
}

}  // namespace canopy::cli
