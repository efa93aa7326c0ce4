// Random texts under random plans, for hours, in one process: soak MODEL DRAFT SECONDS SEED LEAST
// MOST, where LEAST and MOST bound the budgets in bytes. Each text is compared with what plain
// decoding wrote of it. Prints a line of JSON for each episode, which is a model opened, used and
// closed. scripts/soak runs it and judges what it prints.
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "include/canopy/canopy.h"

namespace canopy {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr int kTokens = 48;  // of the longest text
constexpr int kContext = 256;
constexpr std::array kMethods{"auto",        "none",   "chain", "adaptive", "sequoia",
                              "specinfer",   "spectr", "naive", "topk",     "gsd",
                              "gsd-sequoia", "tsd",    "ssd",   "self-ssd", "calibrated"};
constexpr std::array<std::string_view, 3> kUnsized{"specinfer", "spectr", "naive"};
constexpr std::string_view kNoneTravel =  // is in a refusal of self-ssd
    "with this budget none travel: give less memory, or a draft model";
constexpr std::array kPrompts{
    "Once upon a time, in a village by the sea,",
    "The capital of France is",
    "def quicksort(items):\n    ",
    "Q: Why is the sky blue?\nA:",
    "1, 2, 4, 8, 16, 32,",
    "To make bread, you need flour, water, salt and yeast. First,",
    "Es war einmal ein König, der hatte",
    "{\"name\": \"Ada\", \"born\": 1815, \"works\": [",
    "The stream of the river is the river of the stream. The stream of the river is",
    "a",
};

/// The resident memory of this process, in bytes.
std::uint64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmRSS:" && status >> word) return std::stoull(word) << 10;
  return 0;
}

/// Seconds that this process has computed, on all cores.
double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int entries(const char* folder) {
  const auto all = std::filesystem::directory_iterator(folder);
  return static_cast<int>(std::distance(begin(all), end(all)));
}

/// A request and what plain decoding writes for it.
struct Known {
  Request request;
  std::vector<TokenId> tokens;
};

/// Ways to ask: the likeliest tokens, and draws that a seed fixes.
std::vector<Known> asked() {
  std::vector<Known> all;
  for (const char* prompt : kPrompts) {
    Request request{.prompt = prompt, .max_new_tokens = kTokens};
    all.push_back({request, {}});
    request.seed = all.size();
    request.temperature = .7F;
    request.top_p = .9F;
    all.push_back({request, {}});
    request.temperature = 1.2F;
    request.top_k = 40;
    request.repetition_penalty = 1.1F;
    all.push_back({request, {}});
  }
  return all;
}

struct Counts {
  int steps = 0, texts = 0, wrong = 0, cancelled = 0, stopped = 0, errors = 0;
};

class Soak {
 public:
  Soak(const Options& base, std::uint64_t least, std::uint64_t most, unsigned seed)
      : base_(base), least_(least), most_(most), random_(seed), known_(asked()) {}

  /// Writes all texts by plain decoding.
  void learn_texts() {
    const Model model = Model::open(with("none", most_));
    Session session(model);
    for (Known& one : known_)
      session.admit(one.request, {.on_end = [&one](const Text& text) { one.tokens = text.tokens; },
                                  .on_error = [](const std::string& what) { give_up(what); }});
    session.run();
  }

  /// A random plan and what is asked of it; "refused" says why, where the budget is too small, or
  /// so large that no weights travel past those that draft.
  json episode() {
    Options options = with(kMethods[below(kMethods.size())], random_budget());
    constexpr std::array kNodes{0, 0, 0, 2, 8, 32, 100};
    const bool sized =
        options.method != "none" && std::ranges::count(kUnsized, options.method) == 0;
    options.tree_nodes = sized ? kNodes[below(kNodes.size())] : 0;
    options.sequences = 1 + static_cast<int>(below(5));
    options.threads = static_cast<int>(below(3));
    options.temperature = below(2) == 0 ? 0 : .8;
    options.learn = below(2) == 0;
    if (below(6) == 0) options.draft.clear(), options.method = "none", options.tree_nodes = 0;
    if (options.method == "self-ssd") options.draft.clear();
    json row{{"memory", options.memory}, {"method", options.method}};
    if (const std::optional<Model> model = open(options, row)) {
      row["method"] = model->plan().method;
      row["sequences"] = model->plan().sequences;
      run(*model, 4 + static_cast<int>(below(12)), row);
    }
    close(row);
    return row;
  }

  /// The same plan and texts each time: seconds of a step, and those of all its cores, which other
  /// programs hardly change. They must not drift.
  json probe() {
    const Model model = Model::open(with("none", most_));
    Session session(model);
    session.admit({.prompt = kPrompts[0], .max_new_tokens = 24, .ignore_end = true});
    std::vector<double> seconds, cpu;
    while (true) {
      const auto begin = Clock::now();
      const double cpu_begin = cpu_seconds();
      if (!session.step()) break;
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
      cpu.push_back(cpu_seconds() - cpu_begin);
    }
    return {{"probe", true},
            {"seconds_per_step", median(std::move(seconds))},
            {"cpu_seconds_per_step", median(std::move(cpu))}};
  }

 private:
  [[noreturn]] static void give_up(const std::string& what) {
    std::cerr << "soak: " << what << std::endl;
    std::exit(1);
  }
  std::size_t below(std::size_t end) { return random_() % end; }
  std::uint64_t random_budget() {
    const double ratio = static_cast<double>(most_) / static_cast<double>(least_);
    const double part = std::uniform_real_distribution<>(0, 1)(random_);
    return static_cast<std::uint64_t>(static_cast<double>(least_) * std::pow(ratio, part));
  }
  Options with(const char* method, std::uint64_t memory) const {
    Options options = base_;
    options.method = method;
    options.memory = memory;
    return options;
  }

  /// Nothing where the budget is refused, and why in `row`; throws Error where anything else is.
  static std::optional<Model> open(const Options& options, json& row) {
    try {
      return Model::open(options);
    } catch (const Error& error) {
      const std::string what = error.what();
      if (!what.starts_with("a memory budget of") && what.find(kNoneTravel) == std::string::npos)
        throw;
      row["refused"] = what;
      return std::nullopt;
    }
  }

  void admit(Session& session, Counts& counts) {
    const Known& known = known_[below(known_.size())];
    Request request = known.request;
    request.max_new_tokens = 1 + static_cast<int>(below(kTokens));
    const auto ticket = std::make_shared<Ticket>();
    const auto on_end = [this, ticket, &known, &counts,
                         n = request.max_new_tokens](const Text& text) {
      live_.erase(*ticket);
      ++counts.texts;
      const auto expected =
          static_cast<std::ptrdiff_t>(std::min(known.tokens.size(), static_cast<std::size_t>(n)));
      if (!std::equal(text.tokens.begin(), text.tokens.end(), known.tokens.begin(),
                      known.tokens.begin() + expected))
        ++counts.wrong;
    };
    const auto on_error = [this, ticket, &counts](const std::string& what) {
      std::cerr << "soak: " << what << std::endl;
      live_.erase(*ticket);
      ++counts.errors;
    };
    *ticket = session.admit(request, {.on_end = on_end, .on_error = on_error});
    live_.insert(*ticket);
  }

  void run(const Model& model, int texts, json& row) {
    Counts counts;
    Session session(model);
    std::uint64_t peak = 0;
    for (int left = texts; left > 0 || !live_.empty();) {
      for (; left > 0 && (live_.empty() || below(3) == 0); --left) admit(session, counts);
      if (!live_.empty() && below(40) == 0) {
        const auto one = std::next(live_.begin(), static_cast<std::ptrdiff_t>(below(live_.size())));
        session.cancel(*one);
        live_.erase(one);
        ++counts.cancelled;
      }
      std::stop_source stop;
      if (below(30) == 0) stop.request_stop(), ++counts.stopped;
      session.step(stop.get_token());
      ++counts.steps;
      peak = std::max(peak, resident_bytes());
    }
    row.update({{"steps", counts.steps},
                {"texts", counts.texts},
                {"wrong", counts.wrong},
                {"cancelled", counts.cancelled},
                {"stopped", counts.stopped},
                {"errors", counts.errors},
                {"peak_bytes", peak}});
  }

  /// Adds to a row what a closed model leaves: bytes of memory, descriptors, threads.
  static void close(json& row) {
    row["idle_bytes"] = resident_bytes();
    row["descriptors"] = entries("/proc/self/fd");
    row["threads"] = entries("/proc/self/task");
  }

  Options base_;
  std::uint64_t least_, most_;
  std::mt19937_64 random_;
  std::vector<Known> known_;
  std::set<Ticket> live_;
};

int run(int argc, char** argv) {
  if (argc != 7) throw Error("usage: soak MODEL DRAFT SECONDS SEED LEAST MOST");
  const Options base{.model = argv[1], .draft = argv[2], .device = "cpu", .context = kContext};
  Soak soak(base, std::stoull(argv[5]), std::stoull(argv[6]),
            static_cast<unsigned>(std::stoul(argv[4])));
  const auto begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  soak.learn_texts();
  constexpr int kProbeEach = 8;
  for (int number = 0; elapsed() < std::stod(argv[3]); ++number) {
    json row = number % kProbeEach == 0 ? soak.probe() : soak.episode();
    row["seconds"] = elapsed();
    std::cout << row.dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace canopy

int main(int argc, char** argv) try {
  return canopy::run(argc, argv);
} catch (const std::exception& error) {
  std::cerr << "soak: " << error.what() << std::endl;
  return 1;
}
