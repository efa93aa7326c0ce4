#include "src/cli/options/sampling_options.h"

#include <charconv>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "kernels/logit_edit.h"

namespace canopy::cli {

namespace {

FlagCheck<float> between(std::string flag, float least, float most) {
  return [flag = std::move(flag), least, most](const float& value) {
    if (value >= least && value <= most) return;  // a NaN is not
    std::ostringstream message;
    message << std::setprecision(7) << flag << ": must lie between " << least << " and " << most;
    throw UsageError(message.str());
  };
}

FlagCheck<float> is_share(std::string flag) {
  return [flag = std::move(flag)](const float& value) {
    if (!(value > 0 && value <= 1)) throw UsageError(flag + ": must be above 0 and at most 1");
  };
}

/// "15043+1", "15043-0.5", "15043-inf".
std::pair<TokenId, float> parse_bias(const std::string& text) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError("--logit-bias: '" + text + "' " + why);
  };
  const char *const begin = text.data(), *const end = begin + text.size();
  TokenId token = 0;
  const auto [sign, error] = std::from_chars(begin, end, token);
  if (error != std::errc() || token < 0 || sign == end || (*sign != '+' && *sign != '-'))
    refuse("is not a token id, + or -, and a number: 15043+1, 15043-0.5; 15043-inf bans the token");
  float value = 0;
  const auto [rest, failed] = std::from_chars(sign + 1, end, value);
  if (failed != std::errc() || rest != end || std::isnan(value) || std::signbit(value))
    refuse("does not end in a number after + or -");
  if (*sign == '-') value = -value;
  if (value != -INFINITY && std::abs(value) > kMostEdit)
    refuse("asks for more than 1000000; only -inf is, which bans the token");
  return {token, value};
}

/// Nothing for -1, which other programs take for any seed.
std::optional<std::uint64_t> parse_seed(const std::string& flag, const std::string& text) {
  if (text == "-1") return std::nullopt;
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size())
    throw UsageError(flag + ": '" + text +
                     "' is not a number from 0 to 18446744073709551615, nor " + "-1 for any");
  return seed;
}

}  // namespace

Flags SamplingOptions::flags() {
  Flags flags("Sampling");
  flags.add_options()  //
      ("temp,temperature",
       into(temperature, by_default("T", Sampling().temperature),
            between("--temp", 0, kHighestTemperature)),  //
       "temperature; 0 takes the likeliest token; also --temperature. chat and serve take what the "
       "model's generation_config.json advises for this flag, the next four and --repeat-penalty, "
       "each where it is not given")                                                              //
      ("top-k", into(top_k, by_default("K", Sampling().top_k), at_least("--top-k", 0)),           //
       "keep the K likeliest (0: all)")                                                           //
      ("top-p", into(top_p, by_default("P", Sampling().top_p), is_share("--top-p")),              //
       "then keep the likeliest that make up P of the probability")                               //
      ("min-p", into(min_p, by_default("P", Sampling().min_p), between("--min-p", 0, 1)),         //
       "then keep those at least P times as likely as the likeliest (0: all)")                    //
      ("typical", into(typical_p, by_default("P", Sampling().typical_p), is_share("--typical")),  //
       "then keep those of P of the probability that are about as likely as tokens are on average "
       "(locally typical sampling; 1: all)")             //
      ("seed,s", into(seed, "S", "--seed", parse_seed),  //
       "random seed. With it generate writes the text that plain sampling has for this seed, "
       "whatever the draft and the tree are, which takes more sweeps a token; without it, or with "
       "-1, the text is another each time");
  return flags;
}

Flags SamplingOptions::edit_flags() {
  const auto add_biases = [this](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) bias.push_back(parse_bias(text));
  };
  Flags flags("Edits of logits, before sampling");
  flags.add_options()  //
      ("repeat-penalty",
       into(repetition, by_default("R", LogitEditing().repetition),
            between("--repeat-penalty", 1 / kMostEdit, kMostEdit)),
       "divide the logit of each token of prompt and text by R where it is above 0, else multiply "
       "it (1: off)")  //
      ("presence-penalty",
       into(presence, by_default("A", LogitEditing().presence),
            between("--presence-penalty", -kMostEdit, kMostEdit)),
       "take A off the logit of each token that was generated")  //
      ("frequency-penalty",
       into(frequency, by_default("A", LogitEditing().frequency),
            between("--frequency-penalty", -kMostEdit, kMostEdit)),
       "take A off it for each time that it was")  //
      ("logit-bias",
       boost::program_options::value<std::vector<std::string>>()
           ->composing()
           ->value_name("TOKEN+V|TOKEN-V")
           ->notifier(add_biases),
       "add V to a token's logit, or take it off: 15043+1; 15043-inf bans the token. May be given "
       "several times");
  return flags;
}

Sampling SamplingOptions::sampling() const {
  Sampling sampling = advised;
  sampling.temperature = temperature.value_or(advised.temperature);
  sampling.top_k = top_k.value_or(advised.top_k);
  sampling.top_p = top_p.value_or(advised.top_p);
  sampling.min_p = min_p.value_or(advised.min_p);
  sampling.typical_p = typical_p.value_or(advised.typical_p);
  return sampling;
}

LogitEditing SamplingOptions::edits() const {
  LogitEditing edits = advised_edits;
  edits.repetition = repetition.value_or(edits.repetition);
  edits.presence = presence.value_or(edits.presence);
  edits.frequency = frequency.value_or(edits.frequency);
  edits.bias.insert(edits.bias.end(), bias.begin(), bias.end());
  return edits;
}

std::string SamplingOptions::in_words() const {
  const Sampling sampling = this->sampling();
  const LogitEditing edits = this->edits();
  std::ostringstream text;
  text << "temperature " << sampling.temperature;
  if (sampling.temperature > 0) {
    if (sampling.top_k > 0) text << ", top-k " << sampling.top_k;
    if (sampling.top_p < 1) text << ", top-p " << sampling.top_p;
    if (sampling.min_p > 0) text << ", min-p " << sampling.min_p;
    if (sampling.typical_p < 1) text << ", typical " << sampling.typical_p;
  }
  if (edits.repetition != 1) text << ", repeat penalty " << edits.repetition;
  if (edits.presence != 0) text << ", presence penalty " << edits.presence;
  if (edits.frequency != 0) text << ", frequency penalty " << edits.frequency;
  return text.str();
}

void SamplingOptions::check_tokens(int vocab) const {
  for (const auto& [token, by] : bias)
    if (token >= vocab)
      throw UsageError("--logit-bias: " + std::to_string(token) + " is outside the vocabulary of " +
                       std::to_string(vocab));
}

}  // namespace canopy::cli
