#include "planner/calibrated/calibrated_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/error.h"

namespace canopy {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kTriangle = kChanceFeatures * (kChanceFeatures + 1) / 2;
constexpr std::size_t kSizeNumbers = 3;

std::string quoted(const std::string& name) {
  std::string text(1, '"');
  return text.append(name).append(1, '"');
}

/// A list of `length` finite numbers. Throws Error.
std::vector<double> numbers_of(const nlohmann::json& json, const std::string& where,
                               std::size_t length) {
  bool good = json.is_array() && json.size() == length;
  std::vector<double> numbers;
  for (std::size_t i = 0; good && i < length; ++i) {
    good = json[i].is_number() && std::isfinite(json[i].get<double>());
    if (good) numbers.push_back(json[i].get<double>());
  }
  if (!good)
    throw Error(where + " must be a list of " + std::to_string(length) + " finite numbers");
  return numbers;
}

const nlohmann::json& member(const nlohmann::json& json, const std::string& where,
                             const char* key) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  if (!json.is_object() || found == json.end())
    throw Error(quoted(where).append(" must have ").append(quoted(key)));
  return *found;
}

Json kind_to_json(const CalibratedKind& kind) {
  std::vector<double> triangle;
  for (std::size_t i = 0; i < kChanceFeatures; ++i)
    for (std::size_t j = 0; j <= i; ++j) triangle.push_back(kind.chance.information[i][j]);
  Json sizes = Json::array();
  for (const ValuedSizes::Bin& bin : kind.sizes.bins)
    sizes.push_back({bin.sweeps, bin.nodes, bin.tokens});
  return {{"contexts", kind.chance.contexts},
          {"information", triangle},
          {"moment", kind.chance.moment},
          {"sizes", sizes}};
}

CalibratedKind kind_from_json(const nlohmann::json& json, const std::string& where) {
  CalibratedKind kind;
  const nlohmann::json& contexts = member(json, where, "contexts");
  if (contexts.is_number()) kind.chance.contexts = contexts.get<double>();
  const auto named = [&](const char* key) { return quoted(key).append(" of ").append(where); };
  const std::vector<double> triangle =
      numbers_of(member(json, where, "information"), named("information"), kTriangle);
  std::size_t next = 0;
  for (std::size_t i = 0; i < kChanceFeatures; ++i)
    for (std::size_t j = 0; j <= i; ++j)
      kind.chance.information[i][j] = kind.chance.information[j][i] = triangle[next++];
  const std::vector<double> moment =
      numbers_of(member(json, where, "moment"), named("moment"), kChanceFeatures);
  std::copy(moment.begin(), moment.end(), kind.chance.moment.begin());
  if (!contexts.is_number() || !kind.chance.is_sound())
    throw Error(quoted(where)
                    .append(" is no evidence: contexts must be a number from 0 to ")
                    .append(std::to_string(static_cast<int>(ChanceEvidence::kMostContexts)))
                    .append(", and weights must follow from the others"));
  const nlohmann::json& sizes = member(json, where, "sizes");
  if (!sizes.is_array() || sizes.size() != kind.sizes.bins.size())
    throw Error(named("sizes") + " must be a list of " + std::to_string(kind.sizes.bins.size()));
  for (std::size_t b = 0; b < sizes.size(); ++b) {
    const std::vector<double> bin = numbers_of(sizes[b], named("sizes"), kSizeNumbers);
    const double sweeps = bin[0], nodes = bin[1], tokens = bin[2];
    if (sweeps < 0 || sweeps > ValuedSizes::kMostSweeps || nodes < 0 || tokens < 0 ||
        nodes > kMostTreeNodes * sweeps || tokens > nodes + sweeps)
      throw Error(named("sizes") + ": no trees have shown " + sizes[b].dump());
    kind.sizes.bins[b] = {sweeps, nodes, tokens};
  }
  return kind;
}

}  // namespace

Json calibrated_to_json(const Calibrated& calibrated) {
  return {{"greedy", kind_to_json(calibrated.greedy)},
          {"sampled", kind_to_json(calibrated.sampled)}};
}

Calibrated calibrated_from_json(const nlohmann::json& json) {
  Calibrated calibrated;
  calibrated.greedy = kind_from_json(member(json, "calibrated", "greedy"), "greedy");
  calibrated.sampled = kind_from_json(member(json, "calibrated", "sampled"), "sampled");
  return calibrated;
}

}  // namespace canopy
