#include "src/cli/options/speculation_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "planner/acceptance_file.h"
#include "planner/shape_text.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/cli/options/values.h"

namespace canopy::cli {

SpeculationMethod parse_method(const std::string& flag, const std::string& text) {
  if (const auto method = method_named(text)) return *method;
  throw UsageError(flag + ": '" + text + "' is none of " + method_names());
}

namespace {

constexpr double kPosteriorThreshold = 0.09, kPosteriorAlpha = 0.3;  // arXiv:2401.10774

TreeShape parse_tree(const std::string& text) {
  try {
    const std::optional<TreeShape> written = parse_shape(text);
    TreeShape shape = written ? *written : shape_from_json(read_text(text, kMostSettingsBytes));
    require(shape.size() > 1, "the root alone speculates nothing: use --spec none");
    if (shape.size() > kMostTreeNodes)
      throw Error("a tree of " + std::to_string(shape.size()) + " nodes; the most is " +
                  std::to_string(kMostTreeNodes));
    return shape;
  } catch (const Error& e) {
    throw UsageError("--tree " + text + ": " + e.what());
  }
}

/// A number from 0 to `most`. Throws UsageError.
double parse_number(const std::string& flag, const std::string& text, double most) {
  double value = -1;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || !(value >= 0 && value <= most))
    throw UsageError(flag + ": '" + text + "' is not a number from 0 to " +
                     std::to_string(std::lround(most)));
  return value;
}
double parse_share(const std::string& flag, const std::string& text) {
  return parse_number(flag, text, 1);
}
double parse_nats(const std::string& flag, const std::string& text) {
  return parse_number(flag, text, 1000);
}

FlagCheck<int> between(const std::string& flag, int least, int most) {
  return [=](const int& value) {
    if (value < least || value > most)
      throw UsageError(flag + ": must lie between " + std::to_string(least) + " and " +
                       std::to_string(most));
  };
}

FlagCheck<int> tree_extent(const std::string& flag) {
  return [flag](const int& extent) {
    if (extent > kMostTreeNodes)
      throw UsageError(flag + ": must be at most " + std::to_string(kMostTreeNodes));
    at_least(flag, 2)(extent);
  };
}

}  // namespace

Flags SpeculationOptions::flags() {
  Flags flags("Speculation");
  flags.add_options()  //
      ("model-draft", into(draft, "PATH|SOURCE"),
       "-md: the draft model; or, without a model, what the tree is made of: copy[:M] (what "
       "followed where the last M tokens or more stood before; M=2), ngram:2 (the tokens that most "
       "often followed the last one), ngram:1 (the most frequent tokens), random. With these "
       "--spec is auto, none, chain or topk; ./copy is a file")  //
      ("model-draft-draft", into(inner_draft, "PATH|SOURCE"),
       "-mdd: with --spec chain (and the same as --spec hierarchy): a smaller model, or copy[:M], "
       "ngram:1, ngram:2 or random, guesses what the draft model would write, so that it runs "
       "several of its tokens at once; exact")  //
      ("draft-corpus", into(draft_corpus, "FILE"),
       "with -md copy or ngram: a text to copy from and to count in, beside the one that is "
       "written")  //
      ("medusa", into(medusa, "HEADS"),
       "in place of -md: heads that guess from what the model's own head reads, one for each level "
       "of the tree: a safetensors file, or a directory with one (bench/medusa/train.py trains "
       "them). --spec is auto, none, chain or topk; exact")  //
      ("spec", into(method, "HOW (=auto)", "--spec", parse_method),
       "auto (what is predicted to be the fastest: a tree, a chain or none), none, sequoia, chain, "
       "adaptive, hierarchy, specinfer, spectr, naive or topk: how children are drawn and "
       "verified; gsd, gsd-sequoia, tsd or ssd: the draft's own probabilities make the tree; "
       "self-ssd: without -md, the model drafts by those of its layers that rest in memory, nearly "
       "all of which must; all these are exact. NOT the model's own text: gsd-ratio (at a "
       "temperature above 0), bild, mtad")  //
      ("adaptive", given(adaptive),
       "with --spec chain (and the same as --spec adaptive): each chain ends before a token that "
       "is too unlikely to be reached, by how sure the draft is; exact")  //
      ("lenience", into(lenience, "L", "--lenience", parse_share),
       "with --spec auto, sequoia or chain (adaptive, -mdd): keep drafted tokens up to 1/L times "
       "as often as the model would write them, at --temp 0 those at least L times as likely as "
       "the "
       "likeliest. More tokens a sweep, and NOT the model's own text; 1: the exact rule, 0: keep "
       "all")  //
      ("tree", into(tree, "SHAPE"),
       "the tree's shape, instead of the one chosen: 5x8 (5 sequences of 8 tokens), 4,2,1 "
       "(children on each level), 2-ary:64 (64 nodes with 2 children each, level by level), or a "
       "JSON file with the parents: [-1, 0, 0, 1]")  //
      ("tree-size", into(tree_size, "N", tree_extent("--tree-size")),
       "nodes of the tree, its root included")  //
      ("tree-depth", into(tree_depth, "LEVELS", tree_extent("--tree-depth")),
       "most levels of the tree, the root's included")  //
      ("profile", into(profile, "FILE"),
       "plan with the figures that canopy calibrate hardware -o FILE measured (default: those kept "
       "for these models on this machine, measured once)")  //
      ("acceptance", into(acceptance, "FILE"),
       "plan with the acceptance that canopy calibrate acceptance -o FILE measured, or a JSON list "
       "p(1), p(2), ... (default: what was measured of these models, else a self-draft's; changed "
       "as "
       "far as texts of theirs have shown that it is wrong)")  //
      ("no-learn", given(no_learn),
       "neither plan with what texts have shown of the draft nor add to it");
  return flags.add(method_flags());
}

Flags SpeculationOptions::method_flags() {
  Flags flags("Numbers of single methods");
  flags.add_options()  //
      ("gsd-children",
       into(gsd_children, by_default("K", Growth().children), between("--gsd-children", 1, 32)),
       "gsd, gsd-sequoia, tsd, gsd-ratio: children of a node")  //
      ("gsd-steps", into(gsd_steps, by_default("N", Growth().steps), between("--gsd-steps", 1, 64)),
       "gsd, gsd-sequoia, tsd, ssd, self-ssd, gsd-ratio: levels that the draft runs")  //
      ("gsd-prob", into(gsd_prob, by_default("P", Growth().least), "--gsd-prob", parse_share),
       "gsd, gsd-sequoia, tsd, ssd, self-ssd, gsd-ratio: a token of a lower probability is not "
       "gone on from")  //
      ("gsd-sibling",
       into(gsd_sibling, by_default("P", Growth().least_of_siblings), "--gsd-sibling", parse_share),
       "gsd, gsd-sequoia, tsd, gsd-ratio: nor one of less than P times its best sibling's")  //
      ("gsd-tau", into(gsd_tau, by_default("T", Growth().merge), between("--gsd-tau", 1, 8)),
       "gsd, gsd-ratio: nodes whose last T tokens are the same are drafted once; gsd-sequoia: such "
       "nodes of one level")  //
      ("fallback",
       into(fallback, by_default("F", PlanRequest().fallback), "--fallback", parse_share),
       "bild: the draft goes on while its likeliest token has this probability, --tree-size nodes "
       "at most (11)")  //
      ("rollback",
       into(rollback, by_default("B", PlanRequest().rollback), "--rollback", parse_nats),
       "bild: keep drafted tokens up to the first of which the model's -ln p is above B")  //
      ("beams", into(beams, by_default("W", Growth().beams), between("--beams", 1, 64)),
       "mtad: beams of the draft")                                                              //
      ("gamma", into(gamma, "G (=4)", between("--gamma", 1, 32)), "mtad: tokens of its chain")  //
      ("threshold",
       into(threshold, by_default("TAU", PlanRequest().joint_threshold), "--threshold",
            parse_share),
       "mtad: keep the longest prefix of which min(1, p/q) jointly exceeds TAU")  //
      ("typical-acceptance", given(typical_acceptance),
       "with --medusa: keep the longest path whose tokens each have p > min(E, D exp(-entropy)) "
       "(at --temp 0: of the model's distribution at temperature 1). More tokens a sweep, and NOT "
       "the model's own text")  //
      ("posterior-threshold",
       into(posterior_threshold, by_default("E", kPosteriorThreshold), "--posterior-threshold",
            parse_share),
       "typical acceptance: E")  //
      ("posterior-alpha",
       into(posterior_alpha, by_default("D", kPosteriorAlpha), "--posterior-alpha", parse_share),
       "typical acceptance: D");
  return flags;
}

void SpeculationOptions::put_numbers(PlanRequest& plan) const {
  using Of = SpeculationMethod;
  const Of asked = plan.method;
  const auto is = [&](std::initializer_list<Of> methods) {
    return every_method || std::find(methods.begin(), methods.end(), asked) != methods.end();
  };
  const auto refuse = [](bool given, bool fits, const char* flag, const char* methods) {
    if (given && !fits) throw UsageError(std::string(flag) + ": is for --spec " + methods);
  };
  const bool merges = is({Of::kGsd, Of::kGsdSequoia, Of::kGsdRatio});
  const bool wide = merges || is({Of::kTsd});
  const bool graph = wide || is({Of::kSsd, Of::kSelfSsd});
  constexpr const char *kMerge = "gsd, gsd-sequoia or gsd-ratio",
                       *kWide = "gsd, gsd-sequoia, tsd or gsd-ratio",
                       *kGraph = "gsd, gsd-sequoia, tsd, ssd, self-ssd or gsd-ratio";
  refuse(gsd_children.has_value(), wide, "--gsd-children", kWide);
  refuse(gsd_sibling.has_value(), wide, "--gsd-sibling", kWide);
  refuse(gsd_steps.has_value(), graph, "--gsd-steps", kGraph);
  refuse(gsd_prob.has_value(), graph, "--gsd-prob", kGraph);
  refuse(gsd_tau.has_value(), merges, "--gsd-tau", kMerge);
  refuse(fallback.has_value(), is({Of::kBild}), "--fallback", "bild");
  refuse(rollback.has_value(), is({Of::kBild}), "--rollback", "bild");
  refuse(beams.has_value(), is({Of::kMtad}), "--beams", "mtad");
  refuse(gamma.has_value(), is({Of::kMtad}), "--gamma", "mtad");
  refuse(threshold.has_value(), is({Of::kMtad}), "--threshold", "mtad");
  Growth& growth = plan.growth;
  growth.children = gsd_children.value_or(growth.children);
  growth.steps = gsd_steps.value_or(growth.steps);
  growth.merge = gsd_tau.value_or(growth.merge);
  growth.least = gsd_prob.value_or(growth.least);
  growth.least_of_siblings = gsd_sibling.value_or(growth.least_of_siblings);
  growth.beams = beams.value_or(growth.beams);
  plan.fallback = fallback.value_or(plan.fallback);
  plan.rollback = rollback.value_or(plan.rollback);
  plan.joint_threshold = threshold.value_or(plan.joint_threshold);
}

Acceptance read_acceptance(const std::string& file) {
  const std::string text = read_text(file, kMostSettingsBytes);
  return in_context("reading " + file, [&]() -> Acceptance {
    const nlohmann::json list = parse_json(text);
    if (!list.is_array()) return acceptance_from_json(text).acceptance;
    Acceptance acceptance;
    double sum = 0;
    for (const nlohmann::json& p : list) {
      if (!p.is_number() || p.get<double>() < 0 || (sum += p.get<double>()) > 1.0 + 1e-9)
        throw Error("a list must hold probabilities that add up to 1 at most");
      acceptance.accept.push_back(p.get<double>());
    }
    if (acceptance.accept.empty()) throw Error("the list is empty");
    return acceptance;
  });
}

std::shared_ptr<const DraftSource> draft_without_model(const std::string& draft, const char* flag) {
  try {
    return draft_source_named(draft);
  } catch (const Error& e) {
    throw UsageError(std::string(flag) + ": " + e.what());
  }
}

std::shared_ptr<const DraftSource> SpeculationOptions::without_model() const {
  auto named = draft ? draft_without_model(*draft) : nullptr;
  if (draft_corpus && (!named || !named->with_corpus({})))
    throw UsageError("--draft-corpus: is for a draft that reads it: -md copy, ngram:1 or ngram:2");
  return named;
}

void SpeculationOptions::put_heads(PlanRequest& plan) const {
  if (medusa && draft)
    throw UsageError("--medusa, --model-draft: a tree is drafted by one of the two");
  if (medusa && !works_without_model(plan.method))
    throw UsageError(
        "--spec " + std::string(name(plan.method)) +
        ": draws from a draft model's probabilities, and heads have none; --spec auto, "
        "chain or topk");
  if (typical_acceptance && (!medusa || plan.method == SpeculationMethod::kNone))
    throw UsageError("--typical-acceptance: is for what the heads of --medusa propose");
  if ((posterior_threshold || posterior_alpha) && !typical_acceptance)
    throw UsageError(
        "--posterior-threshold, --posterior-alpha: are numbers of --typical-acceptance");
  if (typical_acceptance)
    plan.typical =
        InexactRule{InexactRule::Kind::kTypical, posterior_threshold.value_or(kPosteriorThreshold),
                    posterior_alpha.value_or(kPosteriorAlpha)};
}

void SpeculationOptions::put_into(PlanRequest& plan) const {
  plan.method = method.value_or(SpeculationMethod::kAuto);
  const Method& row = row_of(plan.method);
  if (drafts_with_itself(row.id) && drafts())
    throw UsageError("--spec " + std::string(row.name) +
                     ": the model drafts with its own resting weights; leave out -md and --medusa");
  const bool drafted = drafts() || drafts_with_itself(row.id);
  if (row.id != SpeculationMethod::kAuto && row.id != SpeculationMethod::kNone && !drafted)
    throw UsageError("--spec " + std::string(row.name) + ": needs a draft model, -md");
  put_heads(plan);
  plan.draft = without_model();
  if (adaptive && row.id != SpeculationMethod::kChain && row.id != SpeculationMethod::kAdaptive)
    throw UsageError("--adaptive: is for --spec chain");
  if (adaptive) plan.method = SpeculationMethod::kAdaptive;
  if (inner_draft && !every_method && row.id != SpeculationMethod::kChain &&
      row.id != SpeculationMethod::kHierarchy)
    throw UsageError("--model-draft-draft: is for --spec chain");
  if (inner_draft && adaptive)
    throw UsageError("--model-draft-draft, --adaptive: a chain is of one of the two");
  if (inner_draft) {
    plan.inner = draft_without_model(*inner_draft, "--model-draft-draft");
    if (!every_method) plan.method = SpeculationMethod::kHierarchy;
  }
  if (row.id == SpeculationMethod::kHierarchy && !inner_draft)
    throw UsageError("--spec hierarchy: needs what guesses the draft's tokens, -mdd copy, say");
  if (lenience && (!draft || plan.draft || !takes_lenience(plan.method)))
    throw UsageError(
        "--lenience: is for a draft model with --spec auto, sequoia, chain or adaptive");
  plan.lenience = lenience;
  if (plan.draft && !works_without_model(plan.method))
    throw UsageError("--spec " + std::string(name(plan.method)) +
                     ": draws from a draft model's probabilities, and -md " + *draft +
                     " has none; --spec auto, chain or topk");
  const bool sized = tree_size || tree_depth;
  if ((sized || tree) && (row.id == SpeculationMethod::kNone || !drafted))
    throw UsageError("--tree, --tree-size, --tree-depth: there is no tree without speculation");
  if (sized && tree)
    throw UsageError("--tree: a shape has its size and depth; leave out --tree-size, --tree-depth");
  if (sized && row.form == TreeForm::kSequences)
    throw UsageError("--tree-size, --tree-depth: " + std::string(row.name) +
                     " has no best tree; give --tree 5x8, say");
  if (tree && row.form == TreeForm::kChain)
    throw UsageError("--tree: a chain has its shape; its length is --tree-size");
  if (tree_depth && row.form == TreeForm::kChain)
    throw UsageError("--tree-depth: a chain is as deep as --tree-size says");
  // A tree that is asked for is grown, whatever is predicted of it.
  if (row.id == SpeculationMethod::kAuto && (sized || tree))
    plan.method = plan.draft || medusa ? SpeculationMethod::kTopK : SpeculationMethod::kSequoia;
  if (tree) plan.shape = parse_tree(*tree);
  if (row.form == TreeForm::kGraph && (tree || tree_depth))
    throw UsageError("--tree, --tree-depth: the draft makes the trees of " + std::string(row.name) +
                     "; their nodes are --tree-size, their levels --gsd-steps");
  if (row.id == SpeculationMethod::kMtad && sized)
    throw UsageError("--tree-size: the tokens of mtad's chain are --gamma");
  put_numbers(plan);
  plan.tree_size = row.id == SpeculationMethod::kMtad && gamma ? *gamma + 1 : tree_size.value_or(0);
  plan.tree_levels = tree_depth.value_or(0);
}

}  // namespace canopy::cli
