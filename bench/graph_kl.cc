// Measures what merging costs a graph of drafts: a merged node lends the children of another node
// that ends with the same tokens. How far is the distribution that it lends from its own? One model
// runs every merged node on its own path, too. Source: "Graph-Structured Speculative Decoding",
// Table 5.
#include <algorithm>
#include <boost/program_options.hpp>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/counting.h"
#include "src/base/error.h"
#include "src/base/log_of_sum.h"
#include "src/engine/engine.h"
#include "src/engine/engine_parts.h"
#include "src/measure/calibration_prompts.h"
#include "src/speculation/draft.h"
#include "src/speculation/growers/graph_grower.h"

namespace canopy {
namespace {

constexpr int kPromptTokens = 64, kEvery = 4;  // a graph is grown at every fourth token
constexpr int kNodes = 96;                     // of an unfolded graph

/// Divergences of merged nodes' rows from those that they are lent.
struct Divergences {
  double sum = 0, largest = 0, graphs = 0, nodes = 0;
  int merged = 0;

  void add(double divergence) {
    sum += divergence;
    largest = std::max(largest, divergence);
    ++merged;
  }
};

using Row = std::vector<float>;

Row softmax(std::span<const float> logits) {
  const double log_sum = log_of_sum(logits);
  require(!std::isnan(log_sum), kDraftNotFinite);
  Row row;
  for (const float logit : logits) row.push_back(static_cast<float>(std::exp(logit - log_sum)));
  return row;
}

/// KL(p || q) in nats.
double divergence(const Row& p, const Row& q) {
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i)
    if (p[i] > 0) sum += p[i] * std::log(static_cast<double>(p[i]) / std::max(q[i], 1e-30F));
  return std::max(sum, 0.0);
}

/// Runs trees below a text that the model has read.
class Reader {
 public:
  explicit Reader(TargetModel& model) : model_(model), kv_(model.kv().lend()) {}

  /// All but the last token, which is the root of the trees to come.
  void read(std::span<const TokenId> text) {
    const std::size_t known = static_cast<std::size_t>(kv_->length());
    const std::size_t count = text.size() - 1 - known;
    const std::vector<std::int32_t> positions = counting(static_cast<int>(known), count);
    const SequenceRows rows{{text.subspan(known, count), positions, {}, 0, {}}, kv_.get(), 0};
    model_.forward({&rows, 1});
    kv_->commit(counting(0, count), model_.stream());
  }

  /// The probabilities after each of these nodes of a tree.
  std::vector<Row> run(std::span<const TokenId> tokens, std::span<const NodeId> parents,
                       std::span<const NodeId> wanted) {
    const int count = static_cast<int>(tokens.size());
    std::vector<std::int32_t> positions;
    for (const NodeId parent : parents)
      positions.push_back(parent < 0 ? kv_->length()
                                     : positions[static_cast<std::size_t>(parent)] + 1);
    const std::vector<std::uint64_t> ancestors = ancestor_bits(parents, 0, count);
    const SequenceRows rows{{tokens, positions, ancestors, 0, wanted}, kv_.get(), 0};
    const ConstTensorView logits = model_.forward({&rows, 1});
    const auto columns = static_cast<std::size_t>(logits.dim(1));
    const std::vector<float> all = model_.download_rows(logits, counting(0, wanted.size()));
    std::vector<Row> result;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      result.push_back(softmax(std::span(all).subspan(i * columns, columns)));
    return result;
  }

 private:
  TargetModel& model_;
  KvCaches::Loan kv_;
};

/// Grows one graph and adds the divergence of each node that was merged while it grew; nodes below
/// one of these share more tokens with what they stand for.
void measure(Reader& reader, std::span<const TokenId> text, const Growth& growth,
             Divergences& found) {
  GraphGrower grower(text, growth, {.nodes = kNodes, .widest = kNodes, .run = kNodes});
  std::vector<TokenId> tokens{text.back()};
  std::vector<NodeId> parents{-1};
  std::vector<Row> lent = reader.run(tokens, parents, counting(0, 1));
  for (std::size_t first = 0; first < tokens.size();) {
    std::vector<DraftedRow> rows;
    for (const Row& row : std::span(lent).subspan(first)) rows.push_back({row, row});
    first = tokens.size();
    for (const DraftedNode& node : grower.take(rows)) {
      tokens.push_back(node.token);
      parents.push_back(node.parent);
    }
    if (first == tokens.size()) break;
    for (Row& row :
         reader.run(tokens, parents, counting(static_cast<int>(first), tokens.size() - first)))
      lent.push_back(std::move(row));
  }
  const GrownTree grown = grower.finish();
  std::vector<NodeId> above, merged;
  for (NodeId node = 0; node < grown.tree.size(); ++node) {
    const auto at = static_cast<std::size_t>(node);
    above.push_back(grown.tree.parent(node));
    if (grown.row[at] >= 0 && grown.run[at] != grown.row[at] && !grown.copied[at])
      merged.push_back(node);
  }
  found.graphs += 1;
  found.nodes += grown.tree.size();
  if (merged.empty()) return;
  const std::vector<Row> own = reader.run(grown.tree.tokens(), above, merged);
  for (std::size_t i = 0; i < merged.size(); ++i) {
    const auto of = static_cast<std::size_t>(grown.row[static_cast<std::size_t>(merged[i])]);
    found.add(divergence(own[i], lent[of]));
  }
}

void run_all(int argc, char** argv) {
  namespace po = boost::program_options;
  std::string model;
  int examples = 0, new_tokens = 0;
  double least = 0, least_of_siblings = 0;
  po::options_description flags("bench_graph_kl");
  const Growth usual;
  flags.add_options()("help,h", "print this")  //
      ("model,m", po::value(&model)->required(), "the model that drafts")(
          "examples", po::value(&examples)->default_value(8), "texts, from the default prompts")(
          "new,n", po::value(&new_tokens)->default_value(64), "tokens of each, the model's own")(
          "gsd-prob", po::value(&least)->default_value(usual.least), "as of canopy generate")(
          "gsd-sibling", po::value(&least_of_siblings)->default_value(usual.least_of_siblings),
          "as of canopy generate");
  po::variables_map given;
  po::store(po::parse_command_line(argc, argv, flags), given);
  if (given.count("help") > 0) {
    std::cout << flags;
    return;
  }
  po::notify(given);

  EngineOptions options;
  options.plan.memory = safe_memory();
  options.plan.method = SpeculationMethod::kTopK;  // of which the room for trees is used
  options.plan.shape = best_tree(kNodes, kNodes, Acceptance({0.9}));
  options.plan.max_prompt = kPromptTokens;
  options.plan.context = kPromptTokens + new_tokens + kNodes;
  Engine engine(open_models(model, model), options);
  std::vector<std::vector<TokenId>> texts;
  for (PromptCut& cut :
       cut_prompts(*engine.models().tokenizer, default_prompts(), examples, kPromptTokens)) {
    Request request;
    request.prompt = cut.tokens;
    request.max_new_tokens = new_tokens;
    const TextReport report = engine.generate(request);
    cut.tokens.insert(cut.tokens.end(), report.tokens.begin(), report.tokens.end());
    texts.push_back(std::move(cut.tokens));
  }
  for (const int children : {2, 3, 4})
    for (const int merge : {1, 2, 3, 4}) {
      Growth growth = usual;
      growth.kind = Growth::Kind::kGraph;
      growth.children = children;
      growth.merge = merge;
      growth.least = least;
      growth.least_of_siblings = least_of_siblings;
      Divergences found;
      for (const std::vector<TokenId>& text : texts) {
        Reader reader(engine.parts().target());
        for (std::size_t end = kPromptTokens; end <= text.size(); end += kEvery) {
          const std::span known = std::span(text).first(end);
          reader.read(known);
          measure(reader, known, growth, found);
        }
      }
      std::cout << nlohmann::json{{"children", children},
                                  {"merged_by_tokens", merge},
                                  {"graphs", found.graphs},
                                  {"nodes_per_graph", found.nodes / found.graphs},
                                  {"merged_nodes", found.merged},
                                  {"kl_mean", found.merged > 0
                                                  ? nlohmann::json(found.sum / found.merged)
                                                  : nlohmann::json()},
                                  {"kl_most", found.largest}}
                << std::endl;
    }
}

}  // namespace
}  // namespace canopy

int main(int argc, char** argv) {
  try {
    canopy::run_all(argc, argv);
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "bench_graph_kl: " << e.what() << "\n";
    return 1;
  }
}
