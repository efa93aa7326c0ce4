#include "src/cli/options/beam_options.h"

#include <charconv>
#include <cmath>
#include <string>

#include "planner/tree_shape.h"
#include "src/cli/options/values.h"

namespace canopy::cli {

namespace {

constexpr int kMostBeams = 64;
constexpr int kLevels = 4;  // that the draft goes ahead, unless --tree-depth says
constexpr double kMostPenalty = 100;

FlagCheck<int> beam_count(const std::string& flag) {
  return [flag](const int& count) {
    if (count < 1 || count > kMostBeams)
      throw UsageError(flag + ": must be between 1 and " + std::to_string(kMostBeams));
  };
}

double parse_penalty(const std::string& flag, const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || !(std::abs(value) <= kMostPenalty))
    throw UsageError(flag + ": '" + text + "' is not a number from -100 to 100");
  return value;
}

}  // namespace

Flags BeamOptions::flags() {
  Flags flags("Beam search");
  flags.add_options()  //
      ("num-beams", into(beams, "W", beam_count("--num-beams")),
       "keep the W likeliest beginnings in place of one, as Hugging Face's generate does, and "
       "write "
       "the best text in the end; a draft makes them several tokens longer in a sweep, and changes "
       "nothing")  //
      ("draft-beams", into(draft_beams, "U (=2W)", beam_count("--draft-beams")),
       "with --num-beams: beams of the draft on each level, at least W; --tree-depth says how many "
       "levels there are, the root's included (5)")  //
      ("length-penalty", into(length_penalty, "P (=1)", "--length-penalty", parse_penalty),
       "with --num-beams: a text's score is the log of its probability over its length to the "
       "power of P; above 0 longer texts gain")  //
      ("joint-tokens", into(joint, "G", at_least("--joint-tokens", 1)),
       "with --num-beams: decide G tokens at a time, those that are likeliest together as far as "
       "the "
       "beams find them (MTJD), in place of the whole text. NOT the model's own text");
  return flags;
}

void BeamOptions::check(const DecodeOptions& decode) const {
  if (!beams) {
    if (draft_beams) throw UsageError("--draft-beams: needs --num-beams");
    if (length_penalty) throw UsageError("--length-penalty: needs --num-beams");
    if (joint) throw UsageError("--joint-tokens: needs --num-beams");
    return;
  }
  const SpeculationOptions& with = decode.speculation;
  const auto refuse = [](bool given, const char* flag) {
    if (given) throw UsageError(std::string("--num-beams: a beam search does not go with ") + flag);
  };
  refuse(decode.sampling.sampling().temperature > 0, "a temperature above 0");
  refuse(!decode.sampling.edits().none(), "penalties or --logit-bias");
  refuse(with.medusa.has_value(), "--medusa");
  refuse(with.inner_draft.has_value(), "--model-draft-draft");
  refuse(with.draft && with.without_model(), "a draft without a model");
  refuse(with.method.has_value(), "--spec");
  refuse(with.adaptive, "--adaptive");
  refuse(with.lenience.has_value(), "--lenience");
  refuse(with.tree || with.tree_size, "--tree or --tree-size");
  refuse(with.acceptance || with.profile, "--acceptance or --profile: nothing is predicted of it");
  if (joint && length_penalty)
    throw UsageError(
        "--length-penalty: is for whole texts, and --joint-tokens decides a part at a time");
  if (!with.draft && (draft_beams || with.tree_depth))
    throw UsageError(std::string(draft_beams ? "--draft-beams" : "--tree-depth") +
                     ": needs --model-draft");
  if (draft_beams && *draft_beams < *beams)
    throw UsageError("--draft-beams: must be at least --num-beams, " + std::to_string(*beams));
}

std::optional<BeamRoom> BeamOptions::room(const DecodeOptions& decode, int tokens) const {
  if (!beams) return std::nullopt;
  BeamRoom room{*beams, 0, 0, tokens, joint.value_or(0)};
  if (decode.speculation.draft) {
    room.draft_beams = draft_beams.value_or(2 * *beams);
    room.levels = decode.speculation.tree_depth ? *decode.speculation.tree_depth - 1 : kLevels;
  }
  if (room.nodes() > kMostTreeNodes)
    throw UsageError("--num-beams: " + std::to_string(*beams) + " beams of " +
                     std::to_string(tokens) + " tokens may take " + std::to_string(room.nodes()) +
                     " rows of a sweep, and there are " + std::to_string(kMostTreeNodes) +
                     " at most: give a smaller -n, or fewer beams");
  return room;
}

}  // namespace canopy::cli
