// quantization_config of weights in whole numbers of four or eight bits, as the writers of AWQ,
// GPTQ and compressed-tensors have it.
#include "src/checkpoint/quantized/integer_scheme.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/config_fields.h"

namespace canopy {

namespace {

using nlohmann::json;
constexpr const char *kPacked = "pack-quantized", *kWhole = "int-quantized";

[[noreturn]] void refuse(const std::string& scheme, const std::string& what,
                         const std::string& key) {
  throw Error(scheme + " weights with " + what + " (key " + key +
              ") are not supported: take the model in BF16 or F16, or as a GGUF file in Q4_K or "
              "Q8_0; canopy quantize makes one from BF16");
}

std::string shown_or_null(const json* value) { return value ? shown(*value) : "null"; }

/// Reads how many columns share a scale.
std::int64_t read_group(const Fields& fields, const std::string& scheme) {
  const json* const value = fields.find("group_size");
  if (value && *value == -1) return -1;
  const std::optional<int> group = value ? integer_in<int>(*value) : std::nullopt;
  if (!group || *group < 32 || *group > kMostDim || *group % 32 != 0)
    refuse(scheme, "groups of " + shown_or_null(value) + " columns", fields.name("group_size"));
  return *group;
}

int read_bits(const Fields& fields, const char* key, const std::string& scheme, bool eight) {
  const json* const value = fields.find(key);
  if (!value || !(*value == 4 || (eight && *value == 8)))
    refuse(scheme, shown_or_null(value) + " bits", fields.name(key));
  return value->get<int>();
}

IntegerScheme::Form read_form(const Fields& of, const std::string& scheme) {
  const std::string type = of.text("type", "int");
  if (type != "int") refuse(scheme, "numbers of the type " + in_quotes(type), of.name("type"));
  IntegerScheme::Form form{read_bits(of, "num_bits", scheme, true), -1,
                           !of.flag("symmetric", true)};
  const std::string strategy = of.text("strategy", "");
  if (strategy == "group")
    form.group = read_group(of, scheme);
  else if (strategy != "channel" && strategy != "tensor")
    refuse(scheme, "scales by the strategy " + in_quotes(strategy), of.name("strategy"));
  return form;
}

}  // namespace

IntegerScheme read_awq(const json& object, const std::string& key) {
  const Fields fields(object, key);
  IntegerScheme scheme{.name = "AWQ", .layout = MatrixParts::Layout::kAwq, .forms = {}};
  const std::string version = fields.text("version", "gemm");
  if (version != "gemm" && version != "GEMM")
    refuse(scheme.name, "the order of the version " + in_quotes(version), fields.name("version"));
  if (!fields.flag("zero_point", true))
    refuse(scheme.name, "no zero points", fields.name("zero_point"));
  scheme.forms.push_back(
      {read_bits(fields, "bits", scheme.name, false), read_group(fields, scheme.name), true});
  return scheme;
}

IntegerScheme read_gptq(const json& object, const std::string& key) {
  const Fields fields(object, key);
  IntegerScheme scheme{.name = "GPTQ", .layout = MatrixParts::Layout::kGptq, .forms = {}};
  const std::string format = fields.text("checkpoint_format", "gptq");
  if (format != "gptq" && format != "gptq_v2")
    refuse(scheme.name, "the order of the format " + in_quotes(format),
           fields.name("checkpoint_format"));
  scheme.zero_added = format == "gptq" ? 1 : 0;
  if (fields.flag("is_marlin_format", false))
    refuse(scheme.name, "the order of Marlin", fields.name("is_marlin_format"));
  if (const json* const dynamic = fields.find("dynamic"); dynamic && !dynamic->empty())
    refuse(scheme.name, "other forms of some modules", fields.name("dynamic"));
  scheme.forms.push_back(
      {read_bits(fields, "bits", scheme.name, true), read_group(fields, scheme.name), true});
  return scheme;
}

bool is_of_integers(const json& object) {
  if (!object.is_object()) return false;
  const json of_all = object.value("format", json());
  if (of_all != kPacked && of_all != kWhole) return false;
  const json groups = object.value("config_groups", json());
  if (!groups.is_object() || groups.empty()) return false;
  return std::all_of(groups.begin(), groups.end(), [&](const json& group) {
    const json format = group.is_object() ? group.value("format", json()) : json();
    return format.is_null() || format == of_all;
  });
}

IntegerScheme read_compressed_integers(const json& object, const std::string& key) {
  const Fields fields(object, key);
  const std::string format = fields.text("format", kPacked);
  using enum MatrixParts::Layout;
  IntegerScheme scheme{.name = "compressed-tensors (" + format + ")",
                       .layout = format == kWhole ? kBytes : kCompressed,
                       .forms = {}};
  for (const char* of_keys : {"kv_cache_scheme", "kv_cache_quant_method"})
    if (const json* const value = fields.find(of_keys))
      refuse(scheme.name, "scales of keys and values, " + shown(*value), fields.name(of_keys));
  if (const json* const sparsity = fields.find("sparsity_config");
      sparsity && sparsity->is_object() && sparsity->value("format", json("dense")) != "dense")
    refuse(scheme.name, "a sparse form", fields.name("sparsity_config"));
  if (const json* const transform = fields.find("transform_config");
      transform && !transform->empty())
    refuse(scheme.name, "transformed inputs", fields.name("transform_config"));
  int number = 0;  // their names are anything
  for (const json& group : *fields.find("config_groups")) {
    const std::string of_group = key + ".config_groups[" + std::to_string(number++) + "]";
    const Fields of(group, of_group);
    const json* const weights = of.find("weights");
    if (!weights) throw Error("key " + of.name("weights") + " is missing");
    const Fields of_weights(*weights, of_group + ".weights");
    scheme.forms.push_back(read_form(of_weights, scheme.name));
    if (format == kWhole && scheme.forms.back().bits != 8)
      refuse(scheme.name, "4 bits in a byte", of_weights.name("num_bits"));
  }
  return scheme;
}

}  // namespace canopy
