#include "src/measure/steps/measured_samples.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/json_text.h"

namespace canopy {

using nlohmann::json;

namespace {

constexpr const char* kFormat = "canopy_measurement";
constexpr int kVersion = 1;

double number(const json& value) {
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0)
    throw Error("a cut measurement: a size or a time is no number of 0 or more");
  return value.get<double>();
}

}  // namespace

void MeasuredSamples::add(std::string_view name, Sample sample) {
  const auto found = samples_.find(name);
  (found != samples_.end() ? found->second : samples_[std::string(name)]).push_back(sample);
}

std::span<const Sample> MeasuredSamples::all(std::string_view name) const {
  const auto found = samples_.find(name);
  if (found == samples_.end()) return {};
  return found->second;
}

std::vector<Seconds> MeasuredSamples::times(std::string_view name, double size) const {
  std::vector<Seconds> times;
  for (const Sample& sample : all(name))
    if (sample.x == size) times.push_back(sample.t);
  return times;
}

std::string MeasuredSamples::to_json(std::string_view code) const {
  json samples = json::object();
  for (const auto& [name, all] : samples_)
    for (const Sample& sample : all) samples[name].push_back({sample.x, sample.t.count()});
  return json_text(json{{kFormat, kVersion}, {"code", code}, {"samples", samples}}) + "\n";
}

MeasuredSamples MeasuredSamples::from_json(std::string_view text, std::string_view code) {
  const json in = in_context("reading a cut measurement", [&] { return parse_json(text); });
  if (!in.is_object() || in.value(kFormat, json()) != kVersion ||
      !in.value("samples", json()).is_object())
    throw Error("a cut measurement: this is none of version " + std::to_string(kVersion));
  MeasuredSamples read;
  if (in.value("code", json()) != code) return read;
  for (const auto& [name, samples] : in["samples"].items()) {
    if (!samples.is_array()) throw Error("a cut measurement: \"" + name + "\" must be an array");
    for (const json& sample : samples) {
      if (!sample.is_array() || sample.size() != 2)
        throw Error("a cut measurement: \"" + name + "\" must hold arrays of [size, seconds]");
      read.add(name, {number(sample[0]), Seconds(number(sample[1]))});
    }
  }
  return read;
}

}  // namespace canopy
