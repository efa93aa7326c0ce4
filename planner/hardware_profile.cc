#include "planner/hardware_profile.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
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

constexpr const char *kContext = "context", *kContextAtRest = "context_at_rest";
std::string once(const std::string& context) { return context + "_once"; }

void put_context(json& out, const char* name, const ContextCost& context) {
  out[name] = context.per_row.count();
  if (context.once.count() > 0) out[once(name)] = context.once.count();
}

void put_layer(json& out, const HardwareProfile::LayerCosts& layer) {
  if (!layer.attention.knots().empty()) {
    out["attention"] = curve_json(layer.attention);
    put_context(out, kContext, layer.context);
    if (layer.context_at_rest) put_context(out, kContextAtRest, *layer.context_at_rest);
  }
  if (!layer.mlp.knots().empty()) out["mlp"] = curve_json(layer.mlp);
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

ContextCost context_cost(const json& object, const char* name) {
  const Seconds per_row(number(object, name));
  if (!object.contains(once(name))) return {Seconds(0), per_row};
  return {Seconds(number(object, once(name))), per_row};
}

HardwareProfile::LayerCosts layer_costs(const json& object) {
  HardwareProfile::LayerCosts layer;
  if (object.contains("attention")) {
    layer.attention = curve(object, "attention");
    layer.context = context_cost(object, kContext);
    if (object.contains(kContextAtRest))
      layer.context_at_rest = context_cost(object, kContextAtRest);
  }
  if (object.contains("mlp")) layer.mlp = curve(object, "mlp");
  return layer;
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
           {"head", curve_json(p.head)},
           {"verify", p.verify.count()}};
  put_layer(out, p.layers.front());  // of the first kind, next to all else
  for (const HardwareProfile::LayerCosts& kind : std::span(p.layers).subspan(1)) {
    json more = json::object();
    put_layer(more, kind);
    out["other_layers"].push_back(std::move(more));
  }
  if (!p.at_rest.knots().empty()) out["at_rest"] = curve_json(p.at_rest);
  if (p.modelled) out["modelled"] = true;
  if (p.memory_bytes > 0) out["memory_bytes"] = p.memory_bytes;
  if (p.gpu_memory_bytes > 0) out["gpu_memory_bytes"] = p.gpu_memory_bytes;
  if (p.link_slowing > 0) out["link_slowing"] = p.link_slowing;
  if (p.upload_bytes_per_second > 0) out["upload_bytes_per_second"] = p.upload_bytes_per_second;
  if (p.drafting) {
    json& drafting = out["drafting"];
    drafting = {{"level_greedy", curve_json(p.drafting->level_greedy)},
                {"level_sampled", curve_json(p.drafting->level_sampled)}};
    put_context(drafting, kContext, p.drafting->context);
  }
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
  if (in.contains("link_slowing")) p.link_slowing = number(in, "link_slowing");
  if (p.link_slowing >= 1) refuse("link_slowing", "a number from 0 to below 1");
  if (in.contains("upload_bytes_per_second"))
    p.upload_bytes_per_second = number(in, "upload_bytes_per_second");
  if (const auto modelled = in.find("modelled"); modelled != in.end()) {
    if (!modelled->is_boolean()) refuse("modelled", "true or false");
    p.modelled = modelled->get<bool>();
  }
  p.memory_bytes = bytes(in, "memory_bytes");
  p.gpu_memory_bytes = bytes(in, "gpu_memory_bytes");
  p.embed = curve(in, "embed");
  p.layers = {layer_costs(in)};
  if (const auto others = in.find("other_layers"); others != in.end()) {
    if (!others->is_array()) refuse("other_layers", "an array of objects");
    for (const json& kind : *others) {
      if (!kind.is_object()) refuse("other_layers", "an array of objects");
      p.layers.push_back(layer_costs(kind));
    }
  } else {  // the one kind of a model that has both units
    curve(in, "attention");
    curve(in, "mlp");
  }
  p.head = curve(in, "head");
  if (in.contains("at_rest")) p.at_rest = curve(in, "at_rest");
  p.verify = Seconds(number(in, "verify"));
  if (const auto d = in.find("drafting"); d != in.end()) {
    if (!d->is_object()) refuse("drafting", "an object");
    p.drafting = {curve(*d, "level_greedy"), curve(*d, "level_sampled"),
                  context_cost(*d, kContext)};
  }
  return p;
}

}  // namespace canopy
