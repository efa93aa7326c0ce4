#include "planner/learned_acceptance.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "planner/acceptance_file.h"
#include "planner/calibrated/calibrated_json.h"
#include "src/base/error.h"
#include "src/base/json.h"

namespace canopy {

namespace {

constexpr const char* kVersionKey = "canopy_learned_acceptance";
constexpr const char* kCalibratedKey = "calibrated";
constexpr int kVersion = 2;
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 40;  // of a text: none is as long

/// Positions that `positions` of one text count for among those of others: (B1).
double weight_of(double positions) {
  return positions / (1 + std::max(positions - 1, 0.0) / LearnedAcceptance::kTextPositions);
}

std::string hexadecimal(std::uint64_t number) {
  std::string text(16, '0');
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, number >>= 4)
    *digit = "0123456789abcdef"[number & 0xf];
  return text;
}

std::uint64_t fingerprint_of(const nlohmann::json& text) {
  const auto found = text.find("text");
  const std::string digits =
      found != text.end() && found->is_string() ? found->get<std::string>() : "";
  std::uint64_t number = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  if (digits.size() != 16 || read.ptr != digits.data() + digits.size())
    throw Error("\"text\" must be 16 hexadecimal digits");
  return number;
}

std::vector<std::int64_t> counts_of(const nlohmann::json& text, const char* key) {
  const auto found = text.find(key);
  std::vector<std::int64_t> counts;
  bool good =
      found != text.end() && found->is_array() && found->size() <= TextAcceptance::kMaxRanks;
  for (std::size_t i = 0; good && i < found->size(); ++i) {
    const auto count = integer_in<std::int64_t>((*found)[i]);
    good = count && *count >= 0 && *count <= kMaxPositions;
    if (good) counts.push_back(*count);
  }
  if (!good) throw Error(std::string("\"") + key + "\" must be a list of numbers of positions");
  return counts;
}

TextAcceptance shown_in(const nlohmann::json& text) {
  const std::vector<std::int64_t> asked = counts_of(text, "asked"),
                                  accepted = counts_of(text, "accepted");
  if (asked.size() != accepted.size()) throw Error("\"accepted\" must be as long as \"asked\"");
  std::vector<TextAcceptance::Rank> ranks;
  for (std::size_t k = 0; k < asked.size(); ++k) ranks.push_back({asked[k], accepted[k]});
  return TextAcceptance(std::move(ranks));
}

}  // namespace

void LearnedAcceptance::add(std::uint64_t text, const TextAcceptance& shown) {
  if (shown.positions() == 0) return;
  const auto known = std::find_if(texts_.begin(), texts_.end(),
                                  [&](const Text& one) { return one.fingerprint == text; });
  if (known != texts_.end()) {
    if (known->shown.positions() < shown.positions()) known->shown = shown;
    return;
  }
  if (texts_.size() == kMaxTexts) texts_.erase(texts_.begin());
  texts_.push_back({text, shown});
}

void LearnedAcceptance::add(const LearnedAcceptance& later) {
  for (const Text& text : later.texts_) add(text.fingerprint, text.shown);
  add(later.calibrated_);
}

std::int64_t LearnedAcceptance::positions() const {
  std::int64_t sum = 0;
  for (const Text& text : texts_) sum += text.shown.positions();
  return sum;
}

Acceptance LearnedAcceptance::estimate(const Acceptance& before) const {
  Acceptance estimate{moved(before.accept)};
  for (const std::vector<double>& accept : before.deeper) estimate.deeper.push_back(moved(accept));
  return estimate;
}

std::vector<double> LearnedAcceptance::moved(const std::vector<double>& before) const {
  std::size_t ranks = before.size();
  for (const Text& text : texts_) ranks = std::max(ranks, text.shown.ranks().size());
  std::vector<double> estimate;
  double left = 1, left_before = 1;  // chances that no rank so far is the accepted one
  for (std::size_t k = 0; k < ranks; ++k) {
    const double share_before = k < before.size() ? before[k] : 0.0;
    const double chance_before =
        left_before > 0 ? std::clamp(share_before / left_before, 0.0, 1.0) : 0.0;
    double asked = kBeforePositions * std::max(left_before, 0.0);
    double accepted = asked * chance_before;
    for (const Text& text : texts_) {
      if (k >= text.shown.ranks().size()) continue;
      const TextAcceptance::Rank rank = text.shown.ranks()[k];
      if (rank.asked == 0) continue;
      const double weight = weight_of(static_cast<double>(rank.asked));
      asked += weight;
      accepted += weight * static_cast<double>(rank.accepted) / static_cast<double>(rank.asked);
    }
    const double mean = asked > 0 ? std::min(accepted / asked, 1.0) : 0.0;      // (B2)
    const double error = kErrors * std::sqrt(mean * (1 - mean) / (asked + 1));  // (B3)
    const double chance =
        std::clamp(chance_before, std::max(mean - error, 0.0), std::min(mean + error, 1.0));
    estimate.push_back(left * chance);
    left *= 1 - chance;
    left_before -= share_before;
  }
  return estimate;
}

std::string LearnedAcceptance::to_json() const {
  nlohmann::ordered_json texts = nlohmann::ordered_json::array();
  for (const Text& text : texts_) {
    std::vector<std::int64_t> asked, accepted;
    for (const TextAcceptance::Rank& rank : text.shown.ranks()) {
      asked.push_back(rank.asked);
      accepted.push_back(rank.accepted);
    }
    texts.push_back(
        {{"text", hexadecimal(text.fingerprint)}, {"asked", asked}, {"accepted", accepted}});
  }
  nlohmann::ordered_json json{{kVersionKey, kVersion}, {"texts", texts}};
  if (calibrated_ != Calibrated()) json[kCalibratedKey] = calibrated_to_json(calibrated_);
  return json.dump() + "\n";
}

LearnedAcceptance LearnedAcceptance::from_json(std::string_view text) {
  const nlohmann::json json = parse_json(text);
  if (!json.is_object() || json.value(kVersionKey, nlohmann::json()) != kVersion)
    throw Error("this is not what texts have shown of acceptance, or of another version than " +
                std::to_string(kVersion));
  const auto texts = json.find("texts");
  if (texts == json.end() || !texts->is_array()) throw Error("\"texts\" must be a list of texts");
  if (texts->size() > kMaxTexts)
    throw Error("\"texts\" must be at most " + std::to_string(kMaxTexts));
  LearnedAcceptance learned;
  for (const nlohmann::json& one : *texts) learned.add(fingerprint_of(one), shown_in(one));
  if (const auto calibrated = json.find(kCalibratedKey); calibrated != json.end())
    learned.calibrated_ = calibrated_from_json(*calibrated);
  return learned;
}

std::string learned_file_name(const std::string& target, const std::string& draft,
                              std::string_view drawing, const Sampling& sampling) {
  // The sampling as the measurement's name has it.
  std::string name = acceptance_file_name(target, draft, sampling);
  const std::string measured = "acceptance-";
  return "learned-" + std::string(drawing) + "-" + name.substr(measured.size());
}

}  // namespace canopy
