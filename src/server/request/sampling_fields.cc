#include "src/server/request/sampling_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "src/base/json.h"

namespace canopy::server {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostStops = 16;
constexpr double kMostTemperature = 100;
constexpr std::size_t kMostBiases = 4096;

/// {"50256": -100}, or [[50256, -100]] with false for "never".
std::vector<std::pair<TokenId, float>> read_biases(Fields& fields, int vocab) {
  const char* const name = "logit_bias";
  std::vector<std::pair<TokenId, float>> biases;
  const Json* value = fields.any(name);
  if (value == nullptr) return biases;
  if (!value->is_structured()) fields.fail(name, "must be an object of token ids and numbers");
  if (value->size() > kMostBiases)
    fields.fail(name, "has more than " + std::to_string(kMostBiases) + " entries");
  const auto add = [&](const Json& id, const Json& bias) {
    const TokenId token = token_of(id, name, vocab, fields);
    if (bias.is_boolean() && !bias.get<bool>())
      return biases.emplace_back(token, -std::numeric_limits<float>::infinity());
    if (!bias.is_number() || !(std::abs(bias.get<double>()) <= 1e6))
      fields.fail(name, "has a bias that is not a number");
    return biases.emplace_back(token, bias.get<float>());
  };
  if (value->is_array()) {
    for (const Json& pair : *value) {
      if (!pair.is_array() || pair.size() != 2) fields.fail(name, "has an entry that is no pair");
      add(pair[0], pair[1]);
    }
    return biases;
  }
  for (const auto& [key, bias] : value->items()) {
    std::int64_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size())
      fields.fail(name, "has a key that is no token id");
    add(id, bias);
  }
  return biases;
}

}  // namespace

TokenId token_of(const Json& value, const std::string& name, int vocab, const Fields& fields) {
  if (!value.is_number_integer()) fields.fail(name, "must hold token ids");
  const std::optional<TokenId> id = integer_in<TokenId>(value);
  if (!id || *id < 0 || *id >= vocab)
    fields.fail(
        name, "has token " + value.dump() + ", outside the vocabulary of " + std::to_string(vocab));
  return *id;
}

std::vector<std::string> read_stops(Fields& fields, std::initializer_list<const char*> names) {
  std::vector<std::string> stops;
  for (const char* name : names) {
    const Json* value = fields.any(name);
    if (value == nullptr) continue;
    const auto add = [&](const Json& one) {
      if (!one.is_string()) fields.fail(name, "must be a string or a list of strings");
      if (one.get_ref<const std::string&>().empty()) fields.fail(name, "is empty");
      if (std::find(stops.begin(), stops.end(), one) == stops.end()) stops.push_back(one);
    };
    if (value->is_array())
      for (const Json& one : *value) add(one);
    else
      add(*value);
    if (stops.size() > kMostStops)
      fields.fail(name, "has more than " + std::to_string(kMostStops) + " strings");
  }
  return stops;
}

void read_ends(Fields& fields, const Defaults& defaults, CompletionRequest& request) {
  constexpr std::size_t kMostTokensThatStop = 256;
  if (const Json* ids = fields.any("stop_token_ids")) {
    if (!ids->is_array() || ids->size() > kMostTokensThatStop)
      fields.fail("stop_token_ids", "must be a list of at most " +
                                        std::to_string(kMostTokensThatStop) + " token ids");
    for (const Json& id : *ids)
      request.stop_tokens.push_back(token_of(id, "stop_token_ids", defaults.vocab, fields));
  }
  request.least_tokens = fields.integer("min_tokens", 0, kMostTokens).value_or(0);
  if (request.most_tokens && request.least_tokens > *request.most_tokens)
    fields.fail("min_tokens", "is more than the text may have");
  const bool has_grammar = request.schema || request.must_call;
  if (has_grammar && request.least_tokens > 1)
    fields.fail("min_tokens",
                "can be 0 or 1 alone with a schema or a call that must be: these say when the "
                "text is over");
  if (request.ignore_end && request.least_tokens > 0 && !request.stop_tokens.empty())
    fields.fail("min_tokens", "is not supported together with ignore_eos and stop_token_ids");
}

void read_sampling(Fields& fields, const Defaults& defaults, CompletionRequest& request) {
  const auto set = [&](const char* name, double least, double most, float& value) {
    if (const auto given = fields.number(name, least, most)) value = static_cast<float>(*given);
  };
  Sampling& sampling = request.sampling = defaults.sampling;
  LogitEditing& edits = request.edits = defaults.edits;
  set("temperature", 0, kMostTemperature, sampling.temperature);
  set("top_p", 0, 1, sampling.top_p);
  if (sampling.top_p == 0) fields.fail("top_p", "must be above 0");
  set("min_p", 0, 1, sampling.min_p);
  for (const char* name : {"typical_p", "typical"}) {
    set(name, 0, 1, sampling.typical_p);
    if (sampling.typical_p == 0) fields.fail(name, "must be above 0");
  }
  if (const auto k = fields.integer("top_k", -1, std::numeric_limits<int>::max()))
    sampling.top_k = std::max(*k, 0);
  for (const char* name : {"repeat_penalty", "repetition_penalty", "rep_pen"})
    set(name, 0.01, 100, edits.repetition);
  set("presence_penalty", -2, 2, edits.presence);
  set("frequency_penalty", -2, 2, edits.frequency);
  const auto biases = read_biases(fields, defaults.vocab);
  edits.bias.insert(edits.bias.end(), biases.begin(), biases.end());
  // -1 is any seed, as in llama-server.
  for (const char* name : {"seed", "sampler_seed"})
    if (const auto seed = fields.whole(name); seed && *seed != -1)
      request.seed = static_cast<std::uint64_t>(*seed);
  if (fields.flag("do_sample") == false) sampling.temperature = 0;
  for (const char* name : {"ignore_eos", "ban_eos_token"})
    request.ignore_end |= fields.flag(name).value_or(false);
}

}  // namespace canopy::server
