#include "src/server/request/sampler_order.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace canopy::server {

namespace {

using Json = nlohmann::ordered_json;

/// The samplers, in the order in which they are applied here.
enum class Sampler : std::uint8_t { kPenalties, kTemperature, kTopK, kTopP, kMinP, kTypicalP };
constexpr std::array<const char*, 6> kNames{"penalties", "temperature", "top_k",
                                            "top_p",     "min_p",       "typical_p"};
using Samplers = std::bitset<kNames.size()>;

/// Other servers' names of samplers that are here, too.
constexpr std::array<std::pair<const char*, Sampler>, 5> kOtherNames{
    {{"repetition_penalty", Sampler::kPenalties},
     {"presence_penalty", Sampler::kPenalties},
     {"frequency_penalty", Sampler::kPenalties},
     {"typ_p", Sampler::kTypicalP},
     {"typical", Sampler::kTypicalP}}};

/// KoboldCpp's numbers: top-k, top-a, top-p, tail-free, typical, temperature, penalties.
constexpr std::array<std::optional<Sampler>, 7> kNumbered{
    Sampler::kTopK,     std::nullopt,          Sampler::kTopP,     std::nullopt,
    Sampler::kTypicalP, Sampler::kTemperature, Sampler::kPenalties};

std::size_t index(Sampler sampler) { return static_cast<std::size_t>(sampler); }
const char* name_of(Sampler sampler) { return kNames[index(sampler)]; }

/// Returns the orders that clients send where nobody asked for one.
const std::vector<std::pair<std::string, Json>>& default_orders() {
  static const std::vector<std::pair<std::string, Json>> kOrders{
      // SillyTavern's for llama-server, and llama-server's own, in its page and elsewhere.
      {"samplers", {"top_k", "tfs_z", "typical_p", "top_p", "min_p", "temperature"}},
      {"samplers",
       {"penalties", "dry", "top_n_sigma", "top_k", "typ_p", "tfs_z", "xtc", "top_p", "min_p",
        "temperature"}},
      {"samplers",
       {"penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc",
        "temperature"}},
      {"samplers", {"penalties", "dry", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"}},
      // SillyTavern's for text-generation-webui and KoboldCpp.
      {"sampler_priority",
       {"temperature", "dynamic_temperature", "quadratic_sampling", "top_k", "top_p", "typical_p",
        "epsilon_cutoff", "eta_cutoff", "tfs", "top_a", "min_p", "mirostat"}},
      {"sampler_order", {6, 0, 1, 3, 4, 2, 5}},
      {"temperature_last", true},
  };
  return kOrders;
}

/// Finds the samplers that do something in this request.
Samplers active_in(const CompletionRequest& request) {
  const Sampling& sampling = request.sampling;
  const LogitEditing& edits = request.edits;
  Samplers active;
  active[index(Sampler::kPenalties)] =
      edits.repetition != 1 || edits.presence != 0 || edits.frequency != 0;
  active[index(Sampler::kTemperature)] = sampling.temperature != 1;
  active[index(Sampler::kTopK)] = sampling.top_k > 0;
  active[index(Sampler::kTopP)] = sampling.top_p < 1;
  active[index(Sampler::kMinP)] = sampling.min_p > 0;
  active[index(Sampler::kTypicalP)] = sampling.typical_p < 1;
  return active;
}

/// Says whether two neighbours may change places. Where the likeliest token is taken, all that
/// always keep it may.
bool may_swap(Sampler one, Sampler other, bool greedy) {
  const auto keeps_likeliest = [](Sampler sampler) {
    return sampler != Sampler::kPenalties && sampler != Sampler::kTypicalP;
  };
  if (greedy && keeps_likeliest(one) && keeps_likeliest(other)) return true;
  const auto is = [&](Sampler a, Sampler b) {
    return (one == a && other == b) || (one == b && other == a);
  };
  // Neither ranks nor ratios to the likeliest depend on the other.
  return is(Sampler::kTemperature, Sampler::kTopK) || is(Sampler::kTopK, Sampler::kMinP);
}

/// Describes what in the order changes the text; empty if nothing.
std::string difference(std::span<const Sampler> order, const Samplers& active, bool greedy,
                       bool lists_all) {
  std::vector<Sampler> used;
  for (const Sampler sampler : order)
    if (active[index(sampler)] && std::ranges::find(used, sampler) == used.end())
      used.push_back(sampler);
  for (std::size_t i = 0; i < used.size(); ++i)
    for (std::size_t j = i + 1; j < used.size(); ++j)
      if (used[j] < used[i] && !may_swap(used[i], used[j], greedy))
        return std::string(name_of(used[j])) + " after " + name_of(used[i]);
  for (std::size_t i = 0; lists_all && i < active.size(); ++i)
    if (const auto sampler = static_cast<Sampler>(i);
        active[i] && std::ranges::find(used, sampler) == used.end())
      return std::string("no ") + name_of(sampler);
  return {};
}

/// Reads the samplers of a list that are here, too; others are refused or off by their own members.
std::vector<Sampler> read_order(const Fields& fields, const char* name, const Json& list) {
  const bool numbers = std::string(name) == "sampler_order";
  std::vector<Sampler> order;
  if (!list.is_array())
    fields.fail(name, std::string("must be a list of ") + (numbers ? "numbers" : "names"));
  for (const Json& each : list) {
    if (numbers) {
      if (!each.is_number_integer() || each < 0 || each >= kNumbered.size())
        fields.fail(name, "must hold numbers from 0 to 6");
      if (const auto sampler = kNumbered[each.get<std::size_t>()]) order.push_back(*sampler);
      continue;
    }
    if (!each.is_string()) fields.fail(name, "must hold names of samplers");
    for (std::size_t i = 0; i < kNames.size(); ++i)
      if (each == kNames[i]) order.push_back(static_cast<Sampler>(i));
    for (const auto& [other, sampler] : kOtherNames)
      if (each == other) order.push_back(sampler);
  }
  return order;
}

std::string own_order() {
  std::string words;
  for (const char* name : kNames) words += (words.empty() ? "" : ", ") + std::string(name);
  return words;
}

}  // namespace

void read_sampler_orders(Fields& fields, CompletionRequest& request) {
  const Samplers active = active_in(request);
  const bool greedy = request.sampling.temperature == 0;
  for (const char* const name :
       {"samplers", "sampler_priority", "sampler_order", "temperature_last"}) {
    const Json* value = fields.any(name);
    if (value == nullptr) continue;
    std::vector<Sampler> order;
    if (std::string(name) == "temperature_last") {
      if (fields.flag(name) == false) continue;
      for (const Sampler sampler : {Sampler::kPenalties, Sampler::kTopK, Sampler::kTopP,
                                    Sampler::kMinP, Sampler::kTypicalP, Sampler::kTemperature})
        order.push_back(sampler);
    } else {
      order = read_order(fields, name, *value);
    }
    // llama-server does without those that its list leaves out.
    const bool lists_all = std::string(name) == "samplers";
    const std::string different = difference(order, active, greedy, lists_all);
    if (different.empty()) continue;
    const auto& defaults = default_orders();
    const bool unasked =
        std::ranges::find(defaults, std::pair(std::string(name), *value)) != defaults.end();
    if (!unasked)
      fields.fail(name, "asks for another order, which would change the text (" + different +
                            "): the order here is " + own_order() + ", so leave it out");
    request.warnings.push_back(std::string("'").append(name) + "' is not followed (" + different +
                               "): the order here is " + own_order());
  }
}

}  // namespace canopy::server
