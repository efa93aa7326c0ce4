// The Sequoia paper's theory and tables (arXiv:2402.12374), worked out by this project's planner.
// Each question prints one CSV; docs/results/sequoia.md shows and explains them.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "bench/paper/paper_cost.h"
#include "bench/paper/tables.h"
#include "planner/acceptance.h"
#include "planner/shape_text.h"
#include "planner/tree_shape.h"
#include "src/base/error.h"

namespace canopy {
namespace {

using paper::kHardwareAware, paper::kOffloading, paper::kOnChip, paper::kPlainSeconds;

constexpr int kUnlimited = std::numeric_limits<int>::max();

std::string field(double value) {
  if (!std::isfinite(value)) return "";  // nothing to report
  char text[32];
  std::snprintf(text, sizeof text, "%.5g", value);
  return text;
}
std::string field(int value) { return std::to_string(value); }
std::string field(const std::string& text) { return text; }

/// One line of CSV; texts are free of commas.
template <class... Fields>
void line(const Fields&... fields) {
  std::string joined;
  ((joined += (joined.empty() ? "" : ",") + field(fields)), ...);
  std::cout << joined << '\n';
}

/// P_k: the chance that one of k children is accepted.
double any_of(std::size_t k, const Acceptance& acceptance) {
  k = std::min(k, acceptance.accept.size());
  return std::accumulate(acceptance.accept.begin(),
                         acceptance.accept.begin() + static_cast<std::ptrdiff_t>(k), 0.0);
}

double best_tokens(int nodes, int levels, const Acceptance& acceptance) {
  return expected_tokens(best_tree(nodes, levels, acceptance), acceptance);
}

const std::string kPublishedLabel = "published with the code: pair and temperature not stated";
const std::string kLinkLabel = "t(n) = 5.6 s at every n";
const std::string kFittedLabel = "FITTED to this table: its token counts prove nothing";

/// 1, 2, 3, 4, 6, 8, 12, ... up to `most`.
std::vector<int> sizes_up_to(int most) {
  std::vector<int> sizes{1};
  for (int power = 2; power <= most; power *= 2) {
    sizes.push_back(power);
    if (power / 2 * 3 <= most) sizes.push_back(power / 2 * 3);
  }
  return sizes;
}

/// Table 1 and Figure 2: expected tokens against size, and the bounds of fixed forms.
void growth() {
  line("acceptance", "shape", "nodes", "levels", "expected_tokens", "bound_of_the_form");
  for (const double temperature : {0.0, 0.6}) {
    const Acceptance acceptance = default_acceptance(temperature);
    const std::string label =
        "measured: SmolLM2-135M drafted by its Q4_0 copy at T=" + field(temperature);
    const auto print = [&](const std::string& name, const TreeShape& shape, double bound) {
      line(label, name, shape.size(), shape.levels(), expected_tokens(shape, acceptance), bound);
    };
    const double p1 = any_of(1, acceptance);
    for (const int nodes : sizes_up_to(4096)) {
      // Unbounded for endless vectors; these have 32 ranks.
      print("sequoia", best_tree(nodes, kUnlimited, acceptance), 1 / (1 - any_of(32, acceptance)));
      print("chain", TreeShape::chain(nodes), 1 / (1 - p1));
      for (const int k : {2, 4, 8})
        print(k == 2 ? "binary" : std::to_string(k) + "-ary", TreeShape::k_ary(k, nodes),
              1 / (1 - any_of(static_cast<std::size_t>(k), acceptance)));
      for (const int k : {5, 16})
        if (nodes > k)
          print(std::to_string(k) + " sequences", TreeShape::sequences(k, (nodes - 1) / k),
                1 + any_of(static_cast<std::size_t>(k), acceptance) / (1 - p1));
    }
  }
}

/// Theorem 3.6: G(n) grows at least as b log(n) / log(log(n)) where r_k <= 1 / k^b.
void growth_rate() {
  line("acceptance", "b", "nodes", "expected_tokens", "b_ln_n_over_ln_ln_n", "ratio");
  for (const double b : {0.5, 1.0, 2.0}) {
    const Acceptance acceptance =
        paper::from_rejection(4096, [&](int k) { return std::pow(k + 1, -b); });
    for (int nodes = 16; nodes <= 1 << 18; nodes *= 2) {
      const double tokens = best_tokens(nodes, kUnlimited, acceptance);
      const double rate = b * std::log(nodes) / std::log(std::log(nodes));
      line("synthetic: r_k = (k + 1)^-b", b, nodes, tokens, rate, tokens / rate);
    }
  }
}

/// Cost of a step on the paper's hardware, in forwards of the target over one token: by equation
/// (1), tokens / speedup = t(n) + d c. The rows of one system, which have one n, part it into t(n)
/// and c by least squares.
struct SystemCost {
  double t, c;
};
struct System {
  std::string gpu, target, draft;
  double temperature;
  auto operator<=>(const System&) const = default;
};
System system_of(const paper::OnChip& row) {
  return {row.gpu, row.target, row.draft, row.temperature};
}
std::map<System, SystemCost> system_costs() {
  std::map<System, SystemCost> costs;
  for (const auto& one : kOnChip) {
    double rows = 0, sum_d = 0, sum_cost = 0, sum_dd = 0, sum_d_cost = 0;
    for (const auto& row : kOnChip) {
      if (system_of(row) != system_of(one)) continue;
      const double d = row.levels, cost = row.tokens / row.speedup;
      rows += 1, sum_d += d, sum_cost += cost, sum_dd += d * d, sum_d_cost += d * cost;
    }
    const double c = (rows * sum_d_cost - sum_d * sum_cost) / (rows * sum_dd - sum_d * sum_d);
    costs[system_of(one)] = {(sum_cost - c * sum_d) / rows, c};
  }
  return costs;
}
void step_costs() {
  line("gpu", "target", "draft", "temperature", "text", "nodes", "levels", "paper_speedup",
       "paper_tokens", "derived_step_cost", "its_rounding_error", "derived_t_of_n", "derived_c");
  const auto costs = system_costs();
  for (const auto& row : kOnChip) {
    const double cost = row.tokens / row.speedup;
    const SystemCost& of = costs.at(system_of(row));
    line(row.gpu, row.target, row.draft, row.temperature, row.text, row.nodes, row.levels,
         row.speedup, row.tokens, cost, cost * 0.005 * (1 / row.tokens + 1 / row.speedup), of.t,
         of.c);
  }
}

/// SpecInfer's shape of `count` sequences, as Tables 4 and 7 have it next to Sequoia's.
struct Sequences {
  const char* name;
  int count;
  double speedup, tokens;
  TreeShape shape() const { return TreeShape::sequences(count, 8); }
};
std::array<Sequences, 2> specinfer_of(const paper::OnChip& row) {
  return {
      {{"5x8", 5, row.speedup_5x8, row.tokens_5x8}, {"8x8", 8, row.speedup_8x8, row.tokens_8x8}}};
}

/// Finds where `f`, which grows, is 0 between `low` and `high`; nothing if it is not.
std::optional<double> root_of(double low, double high, const std::function<double(double)>& f) {
  if (!(f(low) <= 0 && f(high) >= 0)) return std::nullopt;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (f(middle) < 0 ? low : high) = middle;
  }
  return (low + high) / 2;
}

/// The vector r(k) = (1 - p1) k^-b of which the row's two shapes, Sequoia's and 5x8, gain their
/// tokens: FITTED to them. Nothing where there is none.
std::optional<Acceptance> fitted_to(const paper::OnChip& row) {
  const TreeShape five = TreeShape::sequences(5, 8);
  const auto vector = [](double p1, double b) {
    return paper::from_rejection(32, [=](int k) { return (1 - p1) * std::pow(k, -b); });
  };
  const auto p1_of = [&](double b) {
    return root_of(0.01, 0.99, [&](double p1) {
      return expected_tokens(five, vector(p1, b)) - row.tokens_5x8;
    });
  };
  const auto b = root_of(0.05, 3, [&](double exponent) {
    const auto p1 = p1_of(exponent);  // smaller as the exponent grows
    return p1 ? best_tokens(row.nodes, row.levels, vector(*p1, exponent)) - row.tokens : -1;
  });
  if (!b) return std::nullopt;
  return vector(*p1_of(*b), *b);
}

/// Tables 4 and 7, SpecInfer's columns: the speedup that equation (1) makes of its tokens with t(n)
/// and c of Sequoia's rows, and the tokens of 8x8 under a vector fitted to the two other shapes.
void specinfer() {
  line("gpu", "target", "draft", "temperature", "text", "shape", "nodes", "levels", "paper_speedup",
       "paper_tokens", "derived_step_cost", "its_rounding_error", "step_cost_of_equation",
       "our_speedup", "our_over_paper", "paper_sequoia_over_this", "tokens_sequoia_over_this",
       "fitted_tokens", "acceptance");
  const auto costs = system_costs();
  for (const auto& row : kOnChip) {
    const SystemCost& of = costs.at(system_of(row));
    const Sample t[] = {{1, Seconds(1)}, {static_cast<double>(row.nodes), Seconds(of.t)}};
    const PaperCost equation{Curve::fit(t), Seconds(of.c)};
    const auto fit = fitted_to(row);
    for (const Sequences& s : specinfer_of(row)) {
      const TreeShape shape = s.shape();
      const double cost = s.tokens / s.speedup;
      const double ours = s.tokens / equation.step(shape.size(), shape.levels()).count();
      line(row.gpu, row.target, row.draft, row.temperature, row.text, s.name, shape.size(),
           shape.levels(), s.speedup, s.tokens, cost, cost * 0.005 * (1 / s.tokens + 1 / s.speedup),
           s.tokens / ours, ours, ours / s.speedup, row.speedup / s.speedup, row.tokens / s.tokens,
           fit ? expected_tokens(shape, *fit) : std::nan(""),
           "FITTED to this row's tokens of Sequoia and of 5x8");
    }
  }
}

/// Table 2: what the speedup of each form is made of, under one vector.
void components() {
  line("nodes_drafted", "form", "tokens", "tokens_by_formula", "bound_of_table_2",
       "bound_of_table_1", "levels_drafted", "acceptance");
  const Acceptance acceptance = paper::published();
  const double p1 = any_of(1, acceptance), none = std::nan("");
  for (const int n : {16, 64, 256, 1024}) {
    const TreeShape best = best_tree(n + 1, kUnlimited, acceptance);
    line(n, "sequoia", expected_tokens(best, acceptance), none, none, none, best.levels() - 1,
         kPublishedLabel);
    line(n, "1 sequence", expected_tokens(TreeShape::chain(n + 1), acceptance),
         (1 - std::pow(p1, n + 1)) / (1 - p1), none, 1 / (1 - p1), n, kPublishedLabel);
    for (const int k : {4, 16}) {
      const double any = any_of(static_cast<std::size_t>(k), acceptance);
      const int length = n / k;
      line(n, std::to_string(k) + " sequences",
           expected_tokens(TreeShape::sequences(k, length), acceptance),
           1 + any * (1 - std::pow(p1, length)) / (1 - p1), 1 + 1 / (1 - any), 1 + any / (1 - p1),
           length, kPublishedLabel);
    }
  }
}

/// Figure 3: the chance that k children are all refused, by rule and temperature.
void rejection() {
  line("temperature", "method", "children", "rejected", "power_law_b");
  const auto print = [](double temperature, const std::string& method,
                        const Acceptance& acceptance) {
    // b of r_k ~ k^-b: least squares of log r_k over log k.
    double x = 0, y = 0, xx = 0, xy = 0;
    const int most = static_cast<int>(acceptance.accept.size());
    std::vector<double> r;
    for (int k = 1; k <= most; ++k) {
      r.push_back(1 - any_of(static_cast<std::size_t>(k), acceptance));
      const double lx = std::log(k), ly = std::log(r.back());
      x += lx, y += ly, xx += lx * lx, xy += lx * ly;
    }
    const double b = -(most * xy - x * y) / (most * xx - x * x);
    for (int k = 1; k <= most; ++k)
      line(temperature, method, k, r[static_cast<std::size_t>(k - 1)], b);
  };
  const auto vector = [](const auto& values) {
    return Acceptance{{std::begin(values), std::end(values)}};
  };
  print(0.6, "sequoia", default_acceptance(0.6));
  print(0.6, "specinfer", vector(paper::kSpecInferAt06));
  print(1, "sequoia", vector(paper::kSequoiaAt1));
  print(1, "specinfer", vector(paper::kSpecInferAt1));
}

/// Figure 4: forwards of n tokens, in forwards of one, wherever the tables imply them.
void forward_times() {
  line("gpu", "target", "draft", "temperature", "nodes", "t_of_n", "rounding_error", "from");
  const auto costs = system_costs();
  for (const auto& [system, of] : costs) {
    const auto print = [&](int nodes, double t, double error, const std::string& from) {
      line(system.gpu, system.target, system.draft, system.temperature, nodes, t, error, from);
    };
    const std::string table = system.gpu == "L40" ? "Table 7" : "Table 4";
    int nodes = 0;
    std::array<double, 2> sums{}, errors{};
    double rows = 0;
    for (const auto& row : kOnChip) {
      if (system_of(row) != system) continue;
      nodes = row.nodes;
      rows += 1;
      const auto shapes = specinfer_of(row);
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        const double cost = shapes[i].tokens / shapes[i].speedup;
        sums[i] += cost - shapes[i].shape().levels() * of.c;
        errors[i] += cost * 0.005 * (1 / shapes[i].tokens + 1 / shapes[i].speedup);
      }
    }
    print(41, sums[0] / rows, errors[0] / rows, table + ": 5x8 less 9 c");
    print(65, sums[1] / rows, errors[1] / rows, table + ": 8x8 less 9 c");
    print(nodes, of.t, std::nan(""), table + ": Sequoia's rows by least squares");
  }
  for (const auto& row : kHardwareAware)
    for (const paper::Size& size : row.fixed) {
      const int levels = best_tree(size.nodes, kUnlimited, paper::published()).levels();
      const double cost = size.tokens / size.speedup;
      line(row.gpu, row.target, row.draft, "", size.nodes,
           cost - levels * costs.at({row.gpu, row.target, row.draft, 0}).c,
           cost * 0.005 * (1 / size.tokens + 1 / size.speedup),
           "Table 3 less c of our " + std::to_string(levels) + " levels");
    }
}

/// Table 3: a fixed number of nodes against the choice for the hardware.
void hardware_aware() {
  line("gpu", "target", "draft", "size", "nodes", "levels", "paper_speedup", "paper_tokens",
       "derived_step_cost", "our_step_cost", "our_tokens", "our_speedup", "paper_chosen_over_this",
       "our_chosen_over_this", "acceptance", "step_cost_from");
  const Acceptance acceptance = paper::published();
  const auto costs = system_costs();
  for (const auto& row : kHardwareAware) {
    // The only size whose t(n) and c the tables separate; their temperature 0, as Table 3's is not
    // stated.
    const SystemCost& of = costs.at({row.gpu, row.target, row.draft, 0});
    const Sample t[] = {{1, Seconds(1)}, {64, Seconds(of.t)}};
    const int sizes[] = {64};
    const PaperCost cost{Curve::fit(t), Seconds(of.c)};
    const PaperChoice choice = best_choice(cost, acceptance, sizes, 64);
    const double chosen = 1 / choice.per_token.count();
    const auto print = [&](const std::string& name, const paper::Size& size, int nodes, int levels,
                           double step, double tokens, const std::string& from) {
      line(row.gpu, row.target, row.draft, name, nodes, levels, size.speedup, size.tokens,
           size.tokens / size.speedup, step, tokens, tokens / step,
           row.chosen.speedup / size.speedup, chosen / (tokens / step), kPublishedLabel, from);
    };
    print("chosen", row.chosen, choice.nodes, choice.levels,
          choice.tokens * choice.per_token.count(), choice.tokens,
          "t(64) and c derived from the T=0 rows of " +
              std::string(row.gpu == std::string("L40") ? "Table 7" : "Table 4"));
    for (const paper::Size& size : row.fixed) {
      const TreeShape shape = best_tree(size.nodes, kUnlimited, acceptance);
      print("fixed", size, size.nodes, shape.levels(), size.tokens / size.speedup,
            expected_tokens(shape, acceptance),
            "Table 3 itself: tokens / speedup; unlimited depth assumed");
    }
  }
}

/// c of the 7B on the L40, from the first row of Table 5: what a step takes beyond the sweep, by
/// level. It holds all that is not the sweep: verification too.
Seconds derived_draft(const paper::Offloading& row) {
  return Seconds((row.seconds_per_token * row.tokens - kPlainSeconds) / row.levels);
}
/// t(n) = 5.6 s: the link is taken to be the limit at every size.
PaperCost offloading_cost(Drafting drafting) {
  const Sample t[] = {{1, Seconds(kPlainSeconds)}, {2, Seconds(kPlainSeconds)}};
  return {Curve::fit(t), derived_draft(kOffloading[0]), drafting};
}

/// Table 5: 70B on one L40.
void offloading() {
  line("temperature", "text", "paper_nodes", "paper_levels", "paper_tokens", "paper_s_per_token",
       "paper_speedup", "implied_plain_s", "derived_c_s_of_this_row", "used_c_s_of_first_row",
       "s_per_token_by_sum_of_paper_tree", "s_per_token_overlapped_of_paper_tree",
       "chosen_nodes_by_sum", "chosen_levels_by_sum", "chosen_tokens_by_sum",
       "chosen_s_per_token_by_sum", "chosen_nodes_overlapped", "chosen_levels_overlapped",
       "chosen_tokens_overlapped", "chosen_s_per_token_overlapped", "paper_tokens_16x48",
       "fitted_tokens_16x48", "acceptance_of_chosen", "assumed");
  const PaperCost sum = offloading_cost(Drafting::kBeforeSweep);
  const PaperCost overlapped = offloading_cost(Drafting::kDuringSweep);
  const int sizes[] = {64, 128, 256, 512, 768};  // t(n) beyond the paper's largest is not known
  for (const auto& row : kOffloading) {
    const Acceptance acceptance = paper::fitted(row);
    const PaperChoice a = best_choice(sum, acceptance, sizes, 128);
    const PaperChoice b = best_choice(overlapped, acceptance, sizes, 128);
    line(row.temperature, row.text, row.nodes, row.levels, row.tokens, row.seconds_per_token,
         row.speedup, row.seconds_per_token * row.speedup, derived_draft(row).count(),
         sum.draft.count(), sum.step(row.nodes, row.levels).count() / row.tokens,
         overlapped.step(row.nodes, row.levels).count() / row.tokens, a.nodes, a.levels, a.tokens,
         a.per_token.count(), b.nodes, b.levels, b.tokens, b.per_token.count(),
         row.specinfer_tokens, expected_tokens(TreeShape::sequences(16, 48), acceptance),
         kFittedLabel, kLinkLabel);
  }
}

/// The same by levels, for the plot.
void offloading_levels() {
  line("temperature", "text", "nodes", "levels", "expected_tokens", "s_per_token_by_sum",
       "s_per_token_overlapped", "acceptance", "assumed");
  const PaperCost sum = offloading_cost(Drafting::kBeforeSweep);
  const PaperCost overlapped = offloading_cost(Drafting::kDuringSweep);
  for (const auto& row : {kOffloading[0], kOffloading[1]})
    for (const int nodes : {128, 768, 2048})
      for (int levels = 4; levels <= 40; ++levels) {
        const double tokens = best_tokens(nodes, levels, paper::fitted(row));
        line(row.temperature, row.text, nodes, levels, tokens,
             sum.step(nodes, levels).count() / tokens,
             overlapped.step(nodes, levels).count() / tokens, kFittedLabel, kLinkLabel);
      }
}

/// The file of a published shape: A100-C4-68m-7b-greedy.json.
std::string file_of(const paper::OnChip& row) {
  const std::map<std::string, std::string> names = {{"Llama2-7B", "7b"},   {"Llama2-13B", "13b"},
                                                    {"Vicuna-33B", "33b"}, {"JF68M", "68m"},
                                                    {"JF160M", "160m"},    {"SL1.3B", "1.3b"}};
  return std::string(row.gpu) + "-" + row.text + "-" + names.at(row.draft) + "-" +
         names.at(row.target) + (row.temperature == 0 ? "-greedy.json" : "-stochastic.json");
}

/// Tables 4 and 7: the published vector's tokens next to the measured ones, for the best tree and,
/// where `folder` has it, for the published shape.
void shapes(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder)) throw Error(folder.string() + ": no such folder");
  line("gpu", "target", "draft", "temperature", "text", "nodes", "levels", "paper_tokens",
       "our_best_tree_tokens", "published_shape_tokens", "our_best_over_published_shape",
       "published_shape_over_paper", "acceptance");
  const Acceptance acceptance = paper::published();
  for (const auto& row : kOnChip) {
    const double best = best_tokens(row.nodes, row.levels, acceptance);
    double published = std::nan("");
    if (std::ifstream file(folder / file_of(row)); file) {
      const TreeShape shape =
          shape_from_json(std::string(std::istreambuf_iterator<char>(file), {}));
      if (shape.size() != row.nodes || shape.levels() != row.levels)
        throw Error(file_of(row) + ": its size and levels are not those of its row");
      published = expected_tokens(shape, acceptance);
    }
    line(row.gpu, row.target, row.draft, row.temperature, row.text, row.nodes, row.levels,
         row.tokens, best, published, best / published, published / row.tokens, kPublishedLabel);
  }
}

int run(const std::vector<std::string>& arguments) {
  const std::map<std::string, std::function<void()>> questions = {
      {"growth", growth},
      {"growth_rate", growth_rate},
      {"step_costs", step_costs},
      {"specinfer", specinfer},
      {"components", components},
      {"rejection", rejection},
      {"forward_times", forward_times},
      {"hardware_aware", hardware_aware},
      {"offloading", offloading},
      {"offloading_levels", offloading_levels},
      {"shapes", [&] { shapes(arguments.at(1)); }}};
  const auto question = arguments.empty() ? questions.end() : questions.find(arguments[0]);
  if (question == questions.end() || arguments.size() != (arguments[0] == "shapes" ? 2u : 1u)) {
    std::cerr << "usage: bench_paper growth|growth_rate|step_costs|specinfer|components|rejection|"
                 "forward_times|hardware_aware|offloading|offloading_levels\n       bench_paper "
                 "shapes FOLDER\n";
    return 2;
  }
  question->second();
  return 0;
}

}  // namespace
}  // namespace canopy

int main(int argc, char** argv) {
  try {
    return canopy::run({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    std::cerr << "bench_paper: " << e.what() << '\n';
    return 1;
  }
}
