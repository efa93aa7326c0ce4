#include "src/cli/output/decode_table.h"

#include <algorithm>
#include <array>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "src/base/size_text.h"
#include "src/cli/output/table.h"
#include "src/speculation/method.h"

namespace canopy::cli {

using nlohmann::json;

namespace {

/// " 2.15 +- 0.31": numbers below 100 stand below each other.
std::string interval(double mean, double half_width) {
  return std::string(mean < 10 ? " " : "").append(fixed(mean, 2)) + " +- " + fixed(half_width, 2);
}

void print(const std::vector<json>& rows) {
  std::vector<Column> columns{
      {.head = "method", .width = 10, .align = Align::kLeft, .before = ""},
      {.head = "nodes", .width = 5},
      {.head = "depth", .width = 5},
      {.head = "tokens/step", .width = 15, .align = Align::kLeft, .before = "  "},
      {.head = "no loops", .width = 9},
      {.head = "predicted", .width = 9},
      {.head = "s/token", .width = 9, .before = "  "},
      {.head = "predicted", .width = 9},
      {.head = "ratio", .width = 7},
      {.head = "J/token", .width = 8, .before = "  "},
      {.head = "read/token", .width = 10},
      {.head = "rows/token", .width = 10, .before = "  "},
      {.head = "draft", .width = 6},
      {.head = "accepted", .width = 8},
      {.head = "ppl", .width = 6},
      {.head = "equal", .width = 6}};
  const bool rouge = !rows.empty() && rows.front().contains("rouge_1");
  if (rouge)
    for (const char* name : {"rouge-1", "-2", "-L"}) columns.push_back({.head = name, .width = 5});
  const Table table(std::move(columns));
  std::cout << table.head();
  for (const json& r : rows) {
    const json& predicted = r["predicted_seconds_per_token"];
    const auto bytes = static_cast<std::uint64_t>(r["bytes_per_token"].get<double>());
    std::vector<std::string> cells{
        std::string(r["exact"].get<bool>() ? "" : "~").append(r["method"].get<std::string>()),
        figure(r, "tree_size", 0),
        figure(r, "tree_depth", 0),
        interval(r["tokens_per_step"].get<double>(), r["tokens_per_step_half_width"].get<double>()),
        figure(r, "tokens_per_step_outside_loops", 2),
        figure(r, "predicted_tokens_per_step", 2),
        figure(r, "seconds_per_token", 4),
        figure(r, "predicted_seconds_per_token", 4),
        predicted.is_null() ? "-" : figure(r, "seconds_per_token", 2, 1 / predicted.get<double>()),
        figure(r, "joules_per_token", 2),
        format_size(bytes),
        figure(r, "rows_per_token", 1),
        figure(r, "draft_rows_per_token", 1),
        figure(r, "drafted_share", 3),
        figure(r, "perplexity", 2),
        figure(r, "equal_to_plain", 3)};
    if (rouge)
      for (const char* name : {"rouge_1", "rouge_2", "rouge_l"})
        cells.push_back(figure(r, name, 3));
    std::cout << table.row(cells);
  }
}

/// A line for each rule that is not exact.
void print_changes(const std::vector<json>& rows) {
  std::set<std::string> told;
  for (const json& r : rows)
    if (!r["exact"].get<bool>() && told.insert(r["changes"].get<std::string>()).second)
      std::cout << "~ not exactly the model's text; " << r["changes"].get<std::string>() << "\n";
}

void print_chains(const std::vector<json>& rows) {
  const Table table({{.head = "chain of", .width = 8, .before = ""},
                     {.head = "alpha", .width = 7},
                     {.head = "c", .width = 7},
                     {.head = "tokens", .width = 7},
                     {.head = "speedup", .width = 8},
                     {.head = "best length", .width = 12},
                     {.head = "operations", .width = 11},
                     {.head = "measured", .width = 9},
                     {.head = "bytes", .width = 6}});
  bool begun = false;
  for (const json& r : rows) {
    if (r["chain_gamma"].is_null()) continue;
    if (!begun)
      std::cout
          << "\nWhat chains gain by the formulas of arXiv:2211.17192, from the plan's acceptance; "
             "operations and\nbytes per token are shares of plain decoding's\n"
          << table.head();
    begun = true;
    std::cout << table.row(
        {figure(r, "chain_gamma", 0), figure(r, "chain_alpha", 3), figure(r, "chain_c", 3),
         figure(r, "chain_tokens_per_step", 2), figure(r, "chain_speedup", 2),
         figure(r, "chain_best_gamma", 0), figure(r, "chain_operations", 2),
         figure(r, "chain_measured_operations", 2), figure(r, "chain_bytes", 2)});
  }
}

void print_graphs(const std::vector<json>& rows) {
  const Table table({{.head = "graph", .width = 11, .align = Align::kLeft, .before = ""},
                     {.head = "accepted/checked", .width = 16},
                     {.head = "/longest", .width = 8},
                     {.head = "run/text", .width = 8, .before = "  "},
                     {.head = "checked/text", .width = 12},
                     {.head = "child 1", .width = 7, .before = "  "},
                     {.head = "2", .width = 5},
                     {.head = "3", .width = 5},
                     {.head = "4...", .width = 5},
                     {.head = "n = 1", .width = 6, .before = "  "},
                     {.head = "2", .width = 5},
                     {.head = "3", .width = 5},
                     {.head = "4", .width = 5}});
  bool begun = false;
  for (const json& r : rows) {
    const auto method = method_named(r["method"].get<std::string>());
    if (!method || row_of(*method).form != TreeForm::kGraph) continue;
    if (!begun)
      std::cout << "\nAccepted nodes to those checked and to the trees' longest paths; the draft's "
                   "rows and checked nodes\nof a text; accepted nodes by their place among "
                   "siblings; nodes in n-grams that recur in their tree\n"
                << table.head();
    begun = true;
    std::array<double, 4> ranks = {};
    for (std::size_t i = 0; const json& share : r["accepted_by_rank"])
      ranks[std::min(i++, ranks.size() - 1)] += share.get<double>();
    std::vector<std::string> cells{
        r["method"].get<std::string>(), figure(r, "accepted_of_checked", 3),
        figure(r, "accepted_of_longest", 3), figure(r, "drafted_nodes_per_text", 0),
        figure(r, "checked_nodes_per_text", 0)};
    for (const double share : ranks) cells.push_back(fixed(share, 3));
    for (const char* name : {"recurring_1", "recurring_2", "recurring_3", "recurring_4"})
      cells.push_back(figure(r, name, 3));
    std::cout << table.row(cells);
  }
}

/// Prints what ended BiLD's runs, and how many tokens of MTAD's chains were kept.
void print_runs(const std::vector<json>& rows) {
  for (const json& r : rows) {
    if (!r["run_length"].is_null())
      std::cout << "\n"
                << r["method"].get<std::string>() << ": runs of " << figure(r, "run_length", 2)
                << " drafted tokens; of 100 tokens " << figure(r, "fallbacks_per_100_tokens", 1)
                << " steps where the draft was not sure,\nand "
                << figure(r, "rollbacks_per_100_tokens", 1) << " that rolled a run back\n";
    const auto method = method_named(r["method"].get<std::string>());
    if (!method || row_of(*method).inexact != InexactRule::Kind::kJoint) continue;
    std::cout << "\n" << r["method"].get<std::string>() << ": share of the steps that kept";
    for (std::size_t n = 0; const json& share : r["steps_by_accepted"])
      std::cout << (n == 0 ? " " : ", ") << n << ": " << fixed(share.get<double>(), 3), ++n;
    std::cout << " drafted tokens\n";
  }
}

}  // namespace

void print_decode(const std::vector<json>& rows) {
  print(rows);
  print_changes(rows);
  print_chains(rows);
  print_graphs(rows);
  print_runs(rows);
}

}  // namespace canopy::cli
