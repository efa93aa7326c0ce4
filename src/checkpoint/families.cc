#include "src/checkpoint/families.h"

#include <algorithm>
#include <array>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/readers.h"

namespace canopy {

namespace {

constexpr std::array kBiasedQkv{LayerConfig{.qkv_bias = true}};
constexpr std::array kNormedQk{LayerConfig{.qk_norm = true}};

constexpr std::array kFamilies{
    Family{.name = "llama",
           .hf_class = "LlamaForCausalLM",
           .gguf = "llama",
           .gguf_adjacent_pairs = true,
           .gguf_frequency_factors = true},
    Family{.name = "mistral",
           .hf_class = "MistralForCausalLM",
           .gguf = "llama",
           .gguf_adjacent_pairs = true,
           .gguf_frequency_factors = true,
           .read_config = read_mistral_config},
    Family{.name = "qwen2",
           .hf_class = "Qwen2ForCausalLM",
           .gguf = "qwen2",
           .layer_kinds = kBiasedQkv,
           .read_config = read_qwen_config},
    Family{.name = "qwen3",
           .hf_class = "Qwen3ForCausalLM",
           .gguf = "qwen3",
           .layer_kinds = kNormedQk,
           .read_config = read_qwen3_config},
};

}  // namespace

std::span<const Family> known_families() { return kFamilies; }

std::string family_names() {
  std::string names;
  for (std::size_t i = 0; i < kFamilies.size(); ++i)
    names.append(i == 0                      ? ""
                 : i + 1 == kFamilies.size() ? " and "
                                             : ", ")
        .append(kFamilies[i].name);
  return names;
}

const Family* find_family(std::span<const Family> families, std::string_view name) {
  const auto at = std::find_if(families.begin(), families.end(),
                               [&](const Family& family) { return family.name == name; });
  return at == families.end() ? nullptr : &*at;
}

const Family& family_of(const ModelConfig& config) {
  if (const Family* family = find_family(kFamilies, config.architecture)) return *family;
  throw Error("architecture " + in_quotes(config.architecture) + " is none of " + family_names());
}

std::string canonical_name(const Family& family, std::string_view stored_name) {
  for (const StoredName& stored : family.stored_names)
    if (const auto layer = number_in(stored.name, stored_name))
      return with_number(spec_of(stored.role).name, *layer);
  return std::string(stored_name);
}

}  // namespace canopy
