#include "planner/hardware_profile.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/json_text.h"

namespace canopy {
namespace {

using nlohmann::json;
constexpr int kFormat = 1;

json curve_json(const Curve& curve) {
  json points = json::array();
  for (const Sample& s : curve.knots()) points.push_back({s.x, s.t.count()});
  return points;
}

[[noreturn]] void refuse(const std::string& member, const std::string& wanted) {
  throw Error("hardware profile: \"" + member + "\" must be " + wanted +
              "; measure again with canopy calibrate hardware");
}

const json& member(const json& object, const std::string& name) {
  const auto found = object.find(name);
  if (found == object.end()) refuse(name, "there");
  return *found;
}

double number(const json& object, const std::string& name) {
  const json& value = member(object, name);
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0)
    refuse(name, "a number, 0 or more");
  return value.get<double>();
}

/// 0 where it is missing.
std::uint64_t bytes(const json& object, const std::string& name) {
  if (!object.contains(name)) return 0;
  const double value = number(object, name);
  if (value >= 0x1p63) refuse(name, "less than 2^63");
  return static_cast<std::uint64_t>(value);
}

std::string text(const json& object, const std::string& name) {
  const json& value = member(object, name);
  if (!value.is_string()) refuse(name, "a text");
  return value.get<std::string>();
}

Curve curve(const json& object, const std::string& name) {
  const json& points = member(object, name);
  const std::string wanted = "an array of [rows, seconds]";
  if (!points.is_array() || points.empty()) refuse(name, wanted);
  std::vector<Sample> samples;
  for (const json& point : points) {
    if (!point.is_array() || point.size() != 2 || !point[0].is_number() || !point[1].is_number())
      refuse(name, wanted);
    samples.push_back({point[0].get<double>(), Seconds(point[1].get<double>())});
  }
  try {
    return Curve::fit(samples);
  } catch (const Error&) {
    refuse(name, wanted + ", none negative");
  }
}

}  // namespace

std::string to_json(const HardwareProfile& p) {
  json out{{"canopy_hardware", kFormat},
           {"machine", p.machine},
           {"target", p.target},
           {"draft", p.draft},
           {"version", p.version},
           {"date", p.date},
           {"code", p.code},
           {"link_bytes_per_second", p.link_bytes_per_second},
           {"embed", curve_json(p.embed)},
           {"attention", curve_json(p.attention)},
           {"mlp", curve_json(p.mlp)},
           {"head", curve_json(p.head)},
           {"context", p.context.count()},
           {"verify", p.verify.count()}};
  if (p.modelled) out["modelled"] = true;
  if (p.memory_bytes > 0) out["memory_bytes"] = p.memory_bytes;
  if (p.gpu_memory_bytes > 0) out["gpu_memory_bytes"] = p.gpu_memory_bytes;
  if (p.upload_bytes_per_second > 0) out["upload_bytes_per_second"] = p.upload_bytes_per_second;
  if (p.drafting)
    out["drafting"] = {{"level_greedy", curve_json(p.drafting->level_greedy)},
                       {"level_sampled", curve_json(p.drafting->level_sampled)},
                       {"context", p.drafting->context.count()}};
  return json_text(out, 1) + "\n";
}

HardwareProfile hardware_profile_from_json(std::string_view text_of_it) {
  const json in = in_context("reading a hardware profile", [&] { return parse_json(text_of_it); });
  if (!in.is_object()) throw Error("hardware profile: this is not a JSON object");
  if (const json& format = member(in, "canopy_hardware"); format != kFormat)
    refuse("canopy_hardware", std::to_string(kFormat) + ", the format of this version");
  HardwareProfile p;
  p.machine = text(in, "machine");
  p.target = text(in, "target");
  p.draft = text(in, "draft");
  p.version = text(in, "version");
  p.date = text(in, "date");
  if (in.contains("code")) p.code = text(in, "code");
  p.link_bytes_per_second = number(in, "link_bytes_per_second");
  if (in.contains("upload_bytes_per_second"))
    p.upload_bytes_per_second = number(in, "upload_bytes_per_second");
  if (const auto modelled = in.find("modelled"); modelled != in.end()) {
    if (!modelled->is_boolean()) refuse("modelled", "true or false");
    p.modelled = modelled->get<bool>();
  }
  p.memory_bytes = bytes(in, "memory_bytes");
  p.gpu_memory_bytes = bytes(in, "gpu_memory_bytes");
  p.embed = curve(in, "embed");
  p.attention = curve(in, "attention");
  p.mlp = curve(in, "mlp");
  p.head = curve(in, "head");
  p.context = Seconds(number(in, "context"));
  p.verify = Seconds(number(in, "verify"));
  if (const auto d = in.find("drafting"); d != in.end()) {
    if (!d->is_object()) refuse("drafting", "an object");
    p.drafting = {curve(*d, "level_greedy"), curve(*d, "level_sampled"),
                  Seconds(number(*d, "context"))};
  }
  return p;
}

}  // namespace canopy
