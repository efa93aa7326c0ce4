#include "planner/acceptance_file.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/json_text.h"

namespace canopy {
namespace {

using nlohmann::json;

constexpr const char* kVersionKey = "canopy_acceptance";
constexpr int kVersion = 1;

std::string shortest(float value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}
/// 0.6 for 0.6f, which as a double would be 0.60000002384.
double as_written(float value) { return std::strtod(shortest(value).c_str(), nullptr); }

/// The fields of an object, each checked as it is taken.
class Fields {
 public:
  explicit Fields(const json& object) : object_(object) {}

  std::string text(const char* key) const {
    const json& value = at(key);
    if (!value.is_string()) fail(key, "a text");
    return value.get<std::string>();
  }
  double number(const char* key, double least, double most) const {
    return in_range(key, at(key), least, most);
  }
  std::int64_t count(const char* key, std::int64_t least,
                     std::int64_t most = std::numeric_limits<int>::max()) const {
    const std::optional<std::int64_t> value = integer_in<std::int64_t>(at(key));
    if (!value || *value < least || *value > most)
      fail(key, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    return *value;
  }
  std::vector<double> probabilities(const char* key) const { return probabilities(key, at(key)); }
  /// A list of lists of them, each of `size`; none where there is no such key.
  std::vector<std::vector<double>> levels(const char* key, std::size_t size) const {
    std::vector<std::vector<double>> out;
    if (!object_.contains(key)) return out;
    const json& lists = at(key);
    if (!lists.is_array()) fail(key, "a list of lists of probabilities");
    for (const json& list : lists) {
      out.push_back(probabilities(key, list));
      double sum = 0;
      for (const double p : out.back()) sum += p;
      if (out.back().size() != size || sum > 1 + 1e-9)
        fail(key, "lists as long as \"accept\", each of chances that exclude each other");
    }
    return out;
  }
  static std::vector<double> probabilities(const char* key, const json& list) {
    if (!list.is_array() || list.empty()) fail(key, "a list of probabilities");
    std::vector<double> out;
    for (const json& value : list)
      out.push_back(
          in_range(std::string(key) + "[" + std::to_string(out.size()) + "]", value, 0, 1));
    return out;
  }
  [[noreturn]] static void fail(const std::string& key, const std::string& expected) {
    throw Error("acceptance: \"" + key + "\" must be " + expected);
  }

 private:
  const json& at(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) throw Error("acceptance: no \"" + std::string(key) + "\"");
    return *found;
  }
  static double in_range(const std::string& key, const json& value, double least, double most) {
    const double number = value.is_number() ? value.get<double>() : NAN;
    if (!(number >= least && number <= most))
      fail(key, "a number from " + shortest(static_cast<float>(least)) + " to " +
                    shortest(static_cast<float>(most)));
    return number;
  }
  const json& object_;
};

}  // namespace

std::string to_json(const MeasuredAcceptance& m) {
  nlohmann::ordered_json object{{kVersionKey, kVersion},
                                {"target", m.target},
                                {"draft", m.draft},
                                {"target_name", m.target_name},
                                {"draft_name", m.draft_name},
                                {"temperature", as_written(m.sampling.temperature)},
                                {"top_k", m.sampling.top_k},
                                {"top_p", as_written(m.sampling.top_p)},
                                {"drawing", m.drawing},
                                {"accept", m.acceptance.accept},
                                {"standard_error", m.standard_error},
                                {"positions", m.positions},
                                {"examples", m.examples},
                                {"texts", m.texts},
                                {"prompts", m.prompts},
                                {"date", m.date},
                                {"version", m.version}};
  if (!m.acceptance.deeper.empty()) object["deeper"] = m.acceptance.deeper;
  if (m.sampling.min_p > 0) object["min_p"] = as_written(m.sampling.min_p);
  if (m.sampling.typical_p < 1) object["typical_p"] = as_written(m.sampling.typical_p);
  return json_text(object, 2) + "\n";
}

MeasuredAcceptance acceptance_from_json(std::string_view text) {
  const json object = in_context("reading an acceptance file", [&] { return parse_json(text); });
  require(object.is_object() && object.contains(kVersionKey),
          "acceptance: this is not what `canopy calibrate acceptance` writes");
  const Fields fields(object);
  fields.count(kVersionKey, kVersion, kVersion);
  constexpr double kMost = std::numeric_limits<float>::max();
  MeasuredAcceptance m;
  m.target = fields.text("target");
  m.draft = fields.text("draft");
  m.target_name = fields.text("target_name");
  m.draft_name = fields.text("draft_name");
  m.sampling.temperature = static_cast<float>(fields.number("temperature", 0, kMost));
  m.sampling.top_k = static_cast<int>(fields.count("top_k", 0));
  m.sampling.top_p = static_cast<float>(fields.number("top_p", 0, 1));
  if (object.contains("min_p")) m.sampling.min_p = static_cast<float>(fields.number("min_p", 0, 1));
  if (object.contains("typical_p"))
    m.sampling.typical_p = static_cast<float>(fields.number("typical_p", 0, 1));
  m.drawing = fields.text("drawing");
  m.acceptance.accept = fields.probabilities("accept");
  m.acceptance.deeper = fields.levels("deeper", m.acceptance.accept.size());
  m.standard_error = fields.probabilities("standard_error");
  m.positions = fields.count("positions", 1, std::int64_t{1} << 53);
  m.examples = static_cast<int>(fields.count("examples", 1));
  m.texts = static_cast<int>(fields.count("texts", 1));
  m.prompts = fields.text("prompts");
  m.date = fields.text("date");
  m.version = fields.text("version");
  double sum = 0;
  for (const double p : m.acceptance.accept) sum += p;
  if (sum > 1 + 1e-9)
    Fields::fail("accept", "chances that exclude each other, but they sum to more than 1");
  if (m.standard_error.size() != m.acceptance.accept.size())
    Fields::fail("standard_error", "as long as \"accept\"");
  return m;
}

std::string acceptance_file_name(const std::string& target, const std::string& draft,
                                 const Sampling& sampling) {
  std::string name = "acceptance-" + target + "-" + draft + "-t" + shortest(sampling.temperature);
  if (sampling.top_k > 0) name += "-k" + std::to_string(sampling.top_k);
  if (sampling.top_p < 1) name += "-p" + shortest(sampling.top_p);
  if (sampling.min_p > 0) name += "-m" + shortest(sampling.min_p);
  if (sampling.typical_p < 1) name += "-y" + shortest(sampling.typical_p);
  return name + ".json";
}

}  // namespace canopy
