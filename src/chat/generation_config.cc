#include "src/chat/generation_config.h"

#include <limits>

#include "src/base/error.h"
#include "src/base/json.h"

namespace canopy::chat {

namespace {

/// A number of this range, or nothing.
std::optional<double> number(const nlohmann::json& config, const char* key, double least,
                             double most) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (!found->is_number() || !(found->get<double>() >= least && found->get<double>() <= most))
    throw Error(std::string(key) + ": is not a number of its range");
  return found->get<double>();
}

/// A key by which transformers' generate() writes another text, and the number that switches it
/// off; null, false and what is empty do, too.
struct Other {
  const char* key;
  double off = 0;
};
constexpr Other kOthers[] = {{"num_beams", 1},
                             {"num_beam_groups", 1},
                             {"diversity_penalty"},
                             {"penalty_alpha"},
                             {"guidance_scale", 1},
                             {"encoder_repetition_penalty", 1},
                             {"no_repeat_ngram_size"},
                             {"encoder_no_repeat_ngram_size"},
                             {"epsilon_cutoff"},
                             {"eta_cutoff"},
                             {"top_h"},
                             {"min_length"},
                             {"min_new_tokens"},
                             {"exponential_decay_length_penalty"},
                             {"bad_words_ids"},
                             {"force_words_ids"},
                             {"sequence_bias"},
                             {"suppress_tokens"},
                             {"begin_suppress_tokens"},
                             {"forced_bos_token_id", -1},
                             {"forced_eos_token_id", -1},
                             {"stop_strings"},
                             {"watermarking_config"},
                             {"dola_layers"}};

bool is_on(const nlohmann::json& value, double off) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != off;
  return !value.empty();  // null is, a text is not
}

}  // namespace

GenerationConfig read_generation_config(const std::filesystem::path& model) {
  GenerationConfig out;
  const std::filesystem::path file = model / "generation_config.json";
  if (!std::filesystem::is_directory(model) || !std::filesystem::exists(file)) return out;
  const nlohmann::json config = read_json(file, kMostConfigBytes, FileKind::kOfModel);
  return in_context("reading " + file.string(), [&] {
    require(config.is_object(), "it is not an object");
    const auto share = [&](const char* key) -> std::optional<float> {
      const auto value = number(config, key, 0, 1);
      return value ? std::optional(static_cast<float>(*value)) : std::nullopt;
    };
    out.origin = file.string();
    constexpr double kHighest = 100;
    if (const auto t = number(config, "temperature", 0, kHighest))
      out.temperature = static_cast<float>(*t);
    if (const auto sample = config.find("do_sample");
        sample != config.end() && sample->is_boolean()) {
      if (!sample->get<bool>()) out.temperature = 0.0f;
      if (sample->get<bool>() && !out.temperature) out.temperature = 1.0f;
    }
    out.top_p = share("top_p");
    out.min_p = share("min_p");
    out.typical_p = share("typical_p");
    if (out.top_p == 0.0f) out.top_p.reset();  // Transformers' own "off"
    if (out.typical_p == 0.0f) out.typical_p.reset();
    if (const auto penalty = number(config, "repetition_penalty", 0.01, kHighest))
      out.repetition_penalty = static_cast<float>(*penalty);
    if (const auto k = number(config, "top_k", 0, std::numeric_limits<int>::max()))
      out.top_k = static_cast<int>(*k);
    for (const Other& other : kOthers)
      if (const auto found = config.find(other.key);
          found != config.end() && is_on(*found, other.off))
        out.not_followed.emplace_back(other.key);
    return out;
  });
}

}  // namespace canopy::chat
