// canopy bench offload: what steps of a model's shape cost on a GPU, without its weights.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "planner/acceptance.h"
#include "planner/acceptance_file.h"
#include "src/base/error.h"
#include "src/base/process_memory.h"
#include "src/cli/commands.h"
#include "src/cli/model_options.h"
#include "src/cli/profile.h"
#include "src/cli/progress_line.h"
#include "src/convert/random_checkpoint.h"

namespace canopy::cli {

namespace po = boost::program_options;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* kUsage =
    "usage: canopy bench offload -m SHAPE -md SHAPE [--gpu-memory SIZE] [FLAG ...]\n\n"
    "SYNTHETIC. Runs steps of models with random weights on a GPU: what is copied and computed is\n"
    "what the real ones would need, the text is noise, and the accepted tokens are drawn from an\n"
    "acceptance vector. All layers share one layer's bytes of host memory; each travels by "
    "itself.\n"
    "A SHAPE is llama-2-7b, llama-2-70b, llama-3.2-1b, llama-3.1-8b, llama-3.1-70b, or a\n"
    "config.json.";

struct NamedShape {
  const char *name, *config;
};
constexpr std::array kShapes{
    NamedShape{"llama-2-7b",
               R"({"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
    "intermediate_size": 11008, "num_attention_heads": 32, "num_key_value_heads": 32,
    "vocab_size": 32000, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096})"},
    NamedShape{"llama-2-70b",
               R"({"model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192,
    "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8,
    "vocab_size": 32000, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096})"},
    NamedShape{"llama-3.2-1b",
               R"({"model_type": "llama", "num_hidden_layers": 16, "hidden_size": 2048,
    "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 64, "vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 500000,
    "max_position_embeddings": 131072, "tie_word_embeddings": true})"},
    NamedShape{"llama-3.1-8b",
               R"({"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 500000,
    "max_position_embeddings": 131072})"},
    NamedShape{"llama-3.1-70b",
               R"({"model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192,
    "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8,
    "vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 500000,
    "max_position_embeddings": 131072})"}};

ModelConfig shape_of(const std::string& name) {
  for (const NamedShape& known : kShapes)
    if (name == known.name) return shape_from_config(known.config);
  try {
    return shape_from_config(read_text(name));
  } catch (const Error& e) {
    throw Error(name + ": " + e.what());
  }
}

/// There is no text: only ids go round.
class NoTokenizer final : public Tokenizer {
 public:
  explicit NoTokenizer(int vocab) : vocab_(vocab) {}
  std::vector<TokenId> encode(std::string_view, AddSpecial) const override { return {}; }
  std::string decode(std::span<const TokenId>, AddSpecial) const override { return ""; }
  std::string_view piece(TokenId) const override { return ""; }
  std::string_view token_string(TokenId) const override { return ""; }
  bool is_special(TokenId) const override { return false; }
  bool ends_text(TokenId) const override { return false; }
  int vocab() const override { return vocab_; }

 private:
  int vocab_;
};

/// Where the random weights lie while they are needed.
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

po::options_description flags() {
  po::options_description all("Flags");
  all.add_options()                                                                         //
      ("model,m", po::value<std::string>()->value_name("SHAPE")->required(), "the target")  //
      ("model-draft", po::value<std::string>()->value_name("SHAPE")->required(),            //
       "-md: the draft")                                                                    //
      ("tree-sizes", po::value<std::string>()->value_name("LIST")->default_value("1,64,256,768"),
       "trees to run, 1 being plain offloading; each has the best depth for the vector")  //
      ("tree-depth", po::value<int>()->value_name("LEVELS")->default_value(22),           //
       "most levels of a tree, the root's included")                                      //
      ("steps", po::value<int>()->value_name("N")->default_value(5),
       "of each, after the prompt")                                                              //
      ("prompt-tokens", po::value<int>()->value_name("N")->default_value(128), "of the prompt")  //
      ("temp", po::value<float>()->value_name("T")->default_value(0.6f), "temperature")          //
      ("acceptance", po::value<std::string>()->value_name("FILE"),
       "an acceptance file, or a JSON list p(1), p(2), ... (default: a self-draft's)")       //
      ("device", po::value<std::string>()->value_name("D")->default_value("cuda"),           //
       "cuda or cuda:N")                                                                     //
      ("gpu-memory", po::value<std::string>()->value_name("SIZE"),                           //
       "the run behaves as on a GPU of this size (default: all that is free)")               //
      ("enforce-eager",                                                                      //
       "launch the draft's kernels one by one, instead of a CUDA graph for each level")      //
      ("host-memory", po::value<std::string>()->value_name("SIZE"), "bound on the process")  //
      ("resident", po::value<std::string>()->value_name("SIZE"),
       "target weights that stay on the GPU (default: what fits)")  //
      ("profile", po::value<std::string>()->value_name("FILE"),
       "predict by this profile, too")                                                          //
      ("dry-run", "predict only; needs --profile, --gpu-memory and --host-memory, but no GPU")  //
      ("dir",
       po::value<std::string>()->value_name("FOLDER")->default_value(
           fs::temp_directory_path().string()),
       "where a layer's weights, the embedding and the head lie while this runs")  //
      ("json", "print one JSON object");
  return all;
}

Acceptance acceptance_of(const po::variables_map& values) {
  if (!values.count("acceptance"))
    return default_acceptance(static_cast<double>(values["temp"].as<float>()));
  const std::string text = read_text(values["acceptance"].as<std::string>());
  const json list = json::parse(text, nullptr, false);
  if (!list.is_array()) return acceptance_from_json(text).acceptance;
  Acceptance acceptance;
  double sum = 0;
  for (const json& p : list) {
    if (!p.is_number() || p.get<double>() < 0 || (sum += p.get<double>()) > 1.0 + 1e-9)
      throw Error("--acceptance: a list must hold probabilities that add up to 1 at most");
    acceptance.accept.push_back(p.get<double>());
  }
  if (acceptance.accept.empty()) throw Error("--acceptance: the list is empty");
  return acceptance;
}

class Bench {
 public:
  Bench(const po::variables_map& values, const Interrupt& interrupt)
      : values_(values),
        stop_(interrupt.token()),
        progress_(values),
        folder_(values["dir"].as<std::string>()),
        acceptance_(acceptance_of(values)),
        target_(write("target", values["model"].as<std::string>())),
        draft_(write("draft", values["model-draft"].as<std::string>())) {
    if (target_.config().vocab != draft_.config().vocab)
      throw Error("the shapes have vocabularies of " + std::to_string(target_.config().vocab) +
                  " and " + std::to_string(draft_.config().vocab) + ": no draft for this target");
    if (values.count("profile")) cost_.emplace(read_profile(values["profile"].as<std::string>()));
  }

  json run(int size) {
    EngineOptions options = options_for(size);
    const TreeShape shape = *options.plan.shape;
    json row{{"tree_size", shape.size()}, {"tree_depth", shape.levels()}};
    if (values_.count("dry-run")) {
      const auto ops_of = make_device({});  // for the size of its scratch, near enough
      add_plan(row, make_plan(options.plan, target_, &draft_, resident_memory(), ops_of->ops()));
      return row;
    }
    Engine engine(
        {target_, draft_, std::make_unique<NoTokenizer>(target_.config().vocab)}, options,
        [&](std::uint64_t done, std::uint64_t all) { progress_.show_loading(done, all); }, stop_);
    progress_.end();
    print_notes(engine);
    add_plan(row, engine.plan());
    std::vector<TokenId> prompt;
    for (int i = 0; i < options.plan.max_prompt; ++i)
      prompt.push_back(i * 7919 % target_.config().vocab);
    GenerateRequest request;
    request.prompt = prompt;
    request.sampling.temperature = values_["temp"].as<float>();
    request.max_new_tokens = options.plan.context - options.plan.max_prompt;
    request.ignore_end = true;
    // Steps, not tokens, are wanted: it is stopped behind the last.
    std::stop_source enough;
    const std::stop_callback forward(stop_, [&] { enough.request_stop(); });
    const int steps = values_["steps"].as<int>();
    GenerateEvents events;
    events.on_step = [&](const StepProgress& step) {
      progress_.show("trees of " + std::to_string(shape.size()) + " nodes: step " +
                     std::to_string(step.step) + " of " + std::to_string(steps + 1));
      if (step.new_tokens > 0 && step.step > steps) enough.request_stop();
    };
    const BatchReport report = engine.generate({&request, 1}, events, enough.get_token());
    progress_.end();
    if (stop_.stop_requested()) throw Stopped();
    const double n = std::max(1, report.sweeps - 1);
    const LinkReport& link = report.link;
    row["steps"] = report.sweeps - 1;
    row["seconds_per_step"] = report.decode.count() / n;
    row["tokens_per_step"] = report.decode_tokens / n;
    row["seconds_per_token"] = report.decode.count() / std::max(1, report.decode_tokens);
    row["upload_bytes_per_step"] = static_cast<double>(link.upload_bytes) / n;
    row["upload_bytes_per_second"] =
        link.upload_busy.count() > 0
            ? json(static_cast<double>(link.upload_bytes) / link.upload_busy.count())
            : json();
    row["link_busy"] = link.upload_busy / report.decode;
    row["disk_bytes_per_step"] = static_cast<double>(link.disk_bytes) / n;
    row["compute_seconds"] = report.compute.count() / n;
    row["draft_seconds"] = report.drafting.count() / n;
    row["prefill_seconds"] = report.prefill.count();
    return row;
  }

  std::string vector() const {
    return values_.count("acceptance") ? values_["acceptance"].as<std::string>()
                                       : "a self-draft's (SmolLM2-135M, Q4_0)";
  }

 private:
  Checkpoint write(const std::string& name, const std::string& shape) {
    Checkpoint made = write_random_checkpoint(
        shape_of(shape), folder_.path() / name,
        [&](std::uint64_t done, std::uint64_t all) {
          if (progress_.wants_glimpse() || done == all)
            progress_.show("random weights of " + shape + ": " + format_size(done) + " of " +
                           format_size(all));
        },
        stop_);
    progress_.end();
    return made;
  }

  EngineOptions options_for(int size) const {
    EngineOptions options;
    options.device.kind = "cuda";
    if (const std::string device = values_["device"].as<std::string>(); device != "cuda") {
      if (!device.starts_with("cuda:")) throw UsageError("--device: a GPU is measured: cuda:N");
      options.device.ordinal = std::atoi(device.c_str() + 5);
    }
    options.graphs = values_.count("enforce-eager") == 0;
    PlanRequest& plan = options.plan;
    plan.temperature = static_cast<double>(values_["temp"].as<float>());
    plan.acceptance = options.synthetic_acceptance = acceptance_;
    plan.shape = best_tree(size, std::min(size, values_["tree-depth"].as<int>()), acceptance_);
    plan.spec = size == 1 ? Spec::kNone : Spec::kSequoia;
    plan.max_prompt = values_["prompt-tokens"].as<int>();
    plan.context = plan.max_prompt + (values_["steps"].as<int>() + 2) * 32;
    if (cost_) plan.cost = &*cost_;
    const auto size_flag = [&](const char* flag) {
      return parse_size("--" + std::string(flag), values_[flag].as<std::string>());
    };
    if (values_.count("gpu-memory")) {
      options.device.gpu_memory = size_flag("gpu-memory");
      if (values_.count("dry-run")) plan.device_memory = size_flag("gpu-memory");
    }
    if (values_.count("host-memory")) plan.memory = size_flag("host-memory");
    if (values_.count("resident")) plan.resident = size_flag("resident");
    return options;
  }

  static void add_plan(json& row, const Plan& plan) {
    row["resident_layers"] = plan.resident_layers;
    row["ring_layers"] = plan.ring_layers;
    row["planned_gpu_bytes"] = plan.device->total();
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

  const po::variables_map& values_;
  const std::stop_token stop_;
  ProgressLine progress_;
  const Folder folder_;
  const Acceptance acceptance_;
  const Checkpoint target_, draft_;
  std::optional<CostModel> cost_;
};

void print(const json& rows) {
  std::printf("%6s %6s %9s %10s %9s %9s %6s %9s %9s %9s  %9s\n", "nodes", "depth", "resident",
              "tok/step", "s/step", "s/token", "busy", "GB/s", "compute s", "draft s", "predicted");
  for (const json& row : rows) {
    const auto number = [&](const json& of, const char* key, double scale = 1) {
      return of.contains(key) && of[key].is_number() ? of[key].get<double>() * scale : 0.0;
    };
    const json predicted = row.value("predicted", json::object());
    const json& shown = row.contains("seconds_per_step") ? row : predicted;
    std::printf("%6d %6d %9.1f %10.2f %9.3f %9.3f %6.2f %9.2f %9.3f %9.3f  %9.3f\n",
                row["tree_size"].get<int>(), row["tree_depth"].get<int>(),
                number(row, "resident_layers"), number(shown, "tokens_per_step"),
                number(shown, "seconds_per_step"), number(shown, "seconds_per_token"),
                number(row, "link_busy"), number(row, "upload_bytes_per_second", 1e-9),
                number(shown, "compute_seconds"), number(shown, "draft_seconds"),
                number(predicted, "seconds_per_token"));
  }
}

}  // namespace

int run_bench_offload(const std::vector<std::string>& words) {
  const auto parsed = parse(words, kUsage, flags());
  if (!parsed) return 0;
  const po::variables_map& values = *parsed;
  at_least(values, "steps", 1, 1);
  at_least(values, "prompt-tokens", 1, 1);
  at_least(values, "tree-depth", 1, 1);
  const std::vector<int> sizes =
      parse_numbers("--tree-sizes", values["tree-sizes"].as<std::string>(), 1, 1024);
  if (values.count("dry-run"))
    for (const char* flag : {"profile", "gpu-memory", "host-memory"})
      if (!values.count(flag)) throw UsageError(std::string("--dry-run: needs --") + flag);
  if (const Gpus gpus = find_gpus(); gpus.all.empty() && !values.count("dry-run"))
    throw Error("there is no GPU to measure: " + gpus.why_none);

  const Interrupt interrupt;
  json rows = json::array();
  std::string vector;
  try {
    Bench bench(values, interrupt);
    vector = bench.vector();
    for (const int size : sizes) rows.push_back(bench.run(size));
  } catch (const Stopped&) {
    std::cerr << "\ncanopy bench offload: stopped\n";
    if (rows.empty()) return 130;
  }
  const std::string label =
      std::string(
          "SYNTHETIC: random weights, every layer the same bytes of host memory; accepted "
          "tokens drawn from ") +
      vector + (values.count("dry-run") ? "; PREDICTED, not run" : "");
  if (values.count("json"))
    std::cout << json{{"label", label},
                      {"target", values["model"].as<std::string>()},
                      {"draft", values["model-draft"].as<std::string>()},
                      {"date", today()},
                      {"version", CANOPY_VERSION},
                      {"rows", rows}}
                     .dump(2)
              << "\n";
  else {
    std::cout << label << "\n";
    print(rows);
  }
  if (!std::cout.flush()) throw Error("cannot write to standard output");
  return rows.size() == sizes.size() ? 0 : 130;
}

}  // namespace canopy::cli
