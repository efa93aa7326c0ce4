#include "src/cli/options/speculation_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "planner/acceptance_file.h"
#include "planner/shape_text.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/cli/options/model/hub_model.h"
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

/// A number from 0 to 1. Throws UsageError.
double parse_share(const std::string& flag, const std::string& text) {
  double value = -1;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || !(value >= 0 && value <= 1))
    throw UsageError(flag + ": '" + text + "' is not a number from 0 to 1");
  return value;
}

/// A value that this number may have. Throws UsageError.
double parse_method_number(const MethodNumber& number, const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || !(value >= number.least && value <= number.most) ||
      (number.whole && value != std::floor(value)))
    throw UsageError("--" + std::string(number.name) + ": '" + text + "' is not a " +
                     (number.whole ? "whole " : "") + "number from " +
                     std::to_string(std::lround(number.least)) + " to " +
                     std::to_string(std::lround(number.most)));
  return value;
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
       "verified; calibrated: at temperature 0 and of requests with a seed, trees of the draft's "
       "best tokens by a learned chance of acceptance, of --tree-size nodes, else as sequoia; gsd, "
       "gsd-sequoia, tsd or ssd: the draft's own probabilities make the tree; "
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
       "neither plan with what texts have shown of the draft, or of a mixture's experts, nor add "
       "to it");
  add_draft_repository_flag(flags);
  return flags.add(method_flags());
}

Flags SpeculationOptions::method_flags() {
  Flags flags("Numbers of single methods");
  const Speculation usual;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const MethodNumber& number = method_numbers()[i];
    const std::string help = number.method_names() + ": " + number.help;
    flags.add_options()(number.name,
                        into(numbers[i], by_default(number.symbol, number.get(usual)), number.name,
                             [&number](const std::string&, const std::string& text) {
                               return parse_method_number(number, text);
                             }),
                        help.c_str());
  }
  flags.add_options()  //
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

void SpeculationOptions::put_numbers(Speculation& speculation) const {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const MethodNumber& number = method_numbers()[i];
    if (!numbers[i]) continue;
    if (!every_method && !number.is_of(speculation.method))
      throw UsageError("--" + std::string(number.name) + ": is for --spec " +
                       number.method_names());
    number.set(speculation, *numbers[i]);
  }
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

void SpeculationOptions::put_typical(Speculation& speculation) const {
  if (typical_acceptance && !medusa)
    throw UsageError("--typical-acceptance: is for what the heads of --medusa propose");
  if ((posterior_threshold || posterior_alpha) && !typical_acceptance)
    throw UsageError(
        "--posterior-threshold, --posterior-alpha: are numbers of --typical-acceptance");
  if (typical_acceptance)
    speculation.typical =
        InexactRule{InexactRule::Kind::kTypical, posterior_threshold.value_or(kPosteriorThreshold),
                    posterior_alpha.value_or(kPosteriorAlpha)};
}

std::string SpeculationOptions::flag_of(SpeculationField field, SpeculationMethod asked) const {
  switch (field) {
    case SpeculationField::kMethod:
      return "--spec " + std::string(name(asked)) +
             (medusa  ? ", --medusa"
              : draft ? ", -md " + *draft
                      : "");
    case SpeculationField::kDraft:
      return "--model-draft, -md";
    case SpeculationField::kInner:
      return "--model-draft-draft, -mdd";
    case SpeculationField::kLenience:
      return "--lenience";
    case SpeculationField::kTypical:
      return "--typical-acceptance";
    case SpeculationField::kShape:
      return "--tree";
    case SpeculationField::kTreeSize:
      return tree_depth && !tree_size ? "--tree-depth" : "--tree-size";
    case SpeculationField::kTreeLevels:
      return "--tree-depth";
  }
  return "";
}

void SpeculationOptions::check(const Speculation& speculation) const {
  Speculation asked = speculation;
  DraftsGiven models{draft && !speculation.draft, inner_draft && !speculation.inner,
                     medusa.has_value()};
  if (every_method) {  // each takes of it what it can
    asked.inner.reset();
    models.inner_model = false;
  }
  const auto fault = find_fault(asked, models);
  if (!fault) return;
  std::string advice;
  const auto add = [&](const std::string& flag) {
    advice += (advice.empty() ? "; give " : " or ") + flag;
  };
  if (fault->instead)
    add(*fault->instead == SpeculationField::kShape ? "--tree 5x8, say" : "--tree-size");
  if (fault->number != nullptr) add("--" + std::string(fault->number));
  throw UsageError(flag_of(fault->field, asked.method) + ": " + fault->what + advice);
}

void SpeculationOptions::put_into(Speculation& speculation) const {
  if (medusa && draft)
    throw UsageError("--medusa, --model-draft: a tree is drafted by one of the two");
  speculation.method = method.value_or(SpeculationMethod::kAuto);
  if (adaptive && speculation.method != SpeculationMethod::kChain &&
      speculation.method != SpeculationMethod::kAdaptive)
    throw UsageError("--adaptive: is for --spec chain");
  if (inner_draft && adaptive)
    throw UsageError("--model-draft-draft, --adaptive: a chain is of one of the two");
  if (adaptive) speculation.method = SpeculationMethod::kAdaptive;
  if (inner_draft && speculation.method == SpeculationMethod::kChain && !every_method)
    speculation.method = SpeculationMethod::kHierarchy;
  speculation.draft = without_model();
  if (inner_draft) speculation.inner = draft_without_model(*inner_draft, "--model-draft-draft");
  speculation.lenience = lenience;
  put_typical(speculation);
  if (tree) speculation.shape = parse_tree(*tree);
  speculation.tree_size = tree_size.value_or(0);
  speculation.tree_levels = tree_depth.value_or(0);
  // A tree that is asked for is grown, whatever is predicted of it.
  if (speculation.method == SpeculationMethod::kAuto && drafts() &&
      (tree || tree_size || tree_depth))
    speculation.method =
        speculation.draft || medusa ? SpeculationMethod::kTopK : SpeculationMethod::kSequoia;
  check(speculation);
  put_numbers(speculation);
}

}  // namespace canopy::cli
