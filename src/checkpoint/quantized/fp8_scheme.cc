// quantization_config of FP8 weights, as Hugging Face's, vLLM's and compressed-tensors' writers
// have it.
#include "src/checkpoint/quantized/fp8_scheme.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/config_fields.h"

namespace canopy {

namespace {

using nlohmann::json;

constexpr std::string_view kExpression = "re:";

/// `what`: the part of the scheme that is not read.
[[noreturn]] void refuse(const Fp8Scheme& scheme, const std::string& what, const std::string& key) {
  throw Error(scheme.name + " weights with " + what + " (key '" + key +
              "') are not supported: take the model in BF16 or F16, or as a GGUF file in Q8_0; "
              "canopy quantize makes one from BF16");
}

void read_left_out(const Fields& fields, Fp8Scheme& scheme) {
  for (const char* key : {"modules_to_not_convert", "ignored_layers", "ignore"}) {
    const json* const list = fields.find(key);
    if (!list) continue;
    if (!list->is_array()) throw Error("key " + fields.name(key) + " is not a list");
    for (const json& module : *list) {
      if (!module.is_string()) throw Error("key " + fields.name(key) + " has " + shown(module));
      scheme.left_out.push_back(module.get<std::string>());
    }
    scheme.left_out_key = key;
  }
}

void refuse_scales_of_keys(const Fields& fields, const Fp8Scheme& scheme) {
  for (const char* key : {"kv_cache_scheme", "kv_cache_quant_method"})
    if (const json* const value = fields.find(key))
      refuse(scheme, "scales of keys and values, " + shown(*value), std::string(key));
}

bool is_128_by_128(const json& value) { return value == json{128, 128} || value == "128x128"; }

/// Adds what one group of compressed-tensors says. `where`: its key.
void add_group(const json& group, const std::string& where, Fp8Scheme& scheme) {
  const Fields fields(group, where);
  const json* const weights = fields.find("weights");
  if (!weights) throw Error("key " + fields.name("weights") + " is missing");
  const std::string key = where + ".weights";
  const Fields of(*weights, key);
  if (of.text("type", "int") != "float" || of.integer("num_bits", 64, 8) != 8)
    refuse(scheme, "weights of type " + shown(of.find("type") ? *of.find("type") : json("int")),
           key);
  if (!of.flag("symmetric", true)) refuse(scheme, "zero points", key);
  const std::string strategy = of.text("strategy");
  if (strategy == "tensor")
    scheme.tensor_scales = true;
  else if (strategy == "channel")
    scheme.row_scales = true;
  else if (strategy == "block")
    scheme.block_scales = true;
  else
    refuse(scheme, "scales by the strategy " + in_quotes(strategy), key);
  const json* const block = of.find("block_structure");
  if (strategy == "block" && block && !is_128_by_128(*block))
    refuse(scheme, "scales of blocks of " + shown(*block), key);
  const json* const targets = fields.find("targets");
  scheme.every_layer = scheme.every_layer || (targets && *targets == json{"Linear"});
}

/// Says if `module` is `name`, inside of it, or ends with it, by whole parts between dots.
bool is_or_in(std::string_view module, std::string_view name) {
  if (name.empty()) return false;
  if (module.starts_with(name)) return module.size() == name.size() || module[name.size()] == '.';
  return module.ends_with(name) && module[module.size() - name.size() - 1] == '.';
}

/// Says if the expression matches from the module's beginning, where it is made of characters, '.',
/// '.*', '\.', '^' and '$' alone; nothing for others.
std::optional<bool> matches(std::string_view expression, std::string_view module) {
  if (expression.starts_with('^')) expression.remove_prefix(1);
  const bool to_end = expression.ends_with('$');
  if (to_end) expression.remove_suffix(1);
  // Bit i of `places`: the part of the expression that was read matches module's first i bytes.
  std::vector<bool> places(module.size() + 1);
  places[0] = true;
  for (std::size_t at = 0; at < expression.size(); ++at) {
    char c = expression[at];
    const bool any = c == '.';
    if (c == '\\') {
      if (at + 1 == expression.size() || expression[at + 1] != '.') return {};
      c = expression[++at];
    } else if (std::string_view("*+?()[]{}|^$").find(c) != std::string_view::npos) {
      return {};
    }
    const bool repeats = at + 1 < expression.size() && expression[at + 1] == '*';
    if (repeats && !any) return {};
    std::vector<bool> next(places.size());
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (repeats)
        next[i] = places[i] || (i > 0 && next[i - 1]);
      else
        next[i] = i > 0 && places[i - 1] && (any || module[i - 1] == c);
    }
    places = std::move(next);
    if (repeats) ++at;
  }
  return to_end ? bool(places.back()) : std::ranges::find(places, true) != places.end();
}

}  // namespace

std::optional<bool> Fp8Scheme::leaves_out(std::string_view module) const {
  bool unknown = false;
  for (const std::string_view name : left_out) {
    std::optional<bool> match = is_or_in(module, name);
    if (name.starts_with(kExpression)) match = matches(name.substr(kExpression.size()), module);
    if (!match) unknown = true;
    if (match.value_or(false)) return true;
  }
  if (unknown) return {};
  return false;
}

Fp8Scheme read_fp8(const json& object, const std::string& key) {
  Fp8Scheme scheme{.name = "FP8", .every_layer = true};
  const Fields fields(object, key);
  for (const char* format : {"fmt", "weight_dtype"})
    if (const std::string value = fields.text(format, "e4m3");
        value != "e4m3" && value != "float8_e4m3fn")
      refuse(scheme, "numbers of the format " + in_quotes(value), key + "." + format);
  refuse_scales_of_keys(fields, scheme);
  const json* const block = fields.find("weight_block_size");
  if (block && !is_128_by_128(*block))
    refuse(scheme, "scales of blocks of " + shown(*block), key + ".weight_block_size");
  // Without the key writers of all three kinds are known; null is said where there are no blocks.
  scheme.block_scales = block || !fields.given("weight_block_size");
  scheme.tensor_scales = scheme.row_scales = !block;
  read_left_out(fields, scheme);
  return scheme;
}

bool is_of_floats(const json& object) {
  const auto is = [](const json& format) {
    return format == "float-quantized" || format == "naive-quantized";
  };
  if (!object.is_object()) return false;
  const json groups = object.value("config_groups", json());
  if (!groups.is_object() || groups.empty() || !is(object.value("format", json()))) return false;
  return std::all_of(groups.begin(), groups.end(), [&](const json& group) {
    const json format = group.is_object() ? group.value("format", json()) : json();
    return format.is_null() || is(format);
  });
}

Fp8Scheme read_compressed_tensors(const json& object, const std::string& key) {
  const Fields fields(object, key);
  Fp8Scheme scheme{.name = "compressed-tensors (" + fields.text("format") + ")"};
  refuse_scales_of_keys(fields, scheme);
  if (const json* const sparsity = fields.find("sparsity_config");
      sparsity && sparsity->is_object() && sparsity->value("format", json("dense")) != "dense")
    refuse(scheme, "a sparse form", key + ".sparsity_config");
  if (const json* const transform = fields.find("transform_config");
      transform && !transform->empty())
    refuse(scheme, "transformed inputs", key + ".transform_config");
  int number = 0;  // their names are anything
  for (const json& group : *fields.find("config_groups"))
    add_group(group, key + ".config_groups[" + std::to_string(number++) + "]", scheme);
  read_left_out(fields, scheme);
  return scheme;
}

}  // namespace canopy
