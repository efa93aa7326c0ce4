#include "src/text/gguf_pre_tokenizers.h"

#include <algorithm>
#include <array>

namespace canopy::text {

namespace {

constexpr std::array<std::string_view, 5> kSmollm{"smollm", "command-r", "starcoder", "refact",
                                                  "exaone"};
constexpr std::array<std::string_view, 4> kGpt2{"gpt-2", "olmo", "exaone4", "phi-2"};
constexpr std::array<std::string_view, 5> kLlama3{"llama-bpe", "llama3", "llama-v3", "falcon3",
                                                  "pixtral"};
constexpr std::array<std::string_view, 4> kSmaug{"smaug-bpe", "dbrx", "glm4", "chatglm-bpe"};
constexpr std::array<std::string_view, 2> kQwen2{"qwen2", "deepseek-r1-qwen"};
constexpr std::array<std::string_view, 1> kQwen35{"qwen35"};
constexpr std::array<std::string_view, 1> kTekken{"tekken"};
constexpr std::array<std::string_view, 2> kO200k{"gpt-4o", "minimax-m2"};
constexpr std::array<std::string_view, 1> kSeed{"seed-coder"};
constexpr std::array<std::string_view, 2> kDeepseek3{"deepseek-v3", "hunyuan-dense"};
constexpr std::array<std::string_view, 1> kDefault{"default"};

constexpr std::array<std::string_view, 1> kLlama3Patterns{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::array<std::string_view, 1> kQwen2Patterns{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::array<std::string_view, 1> kQwen35Patterns{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::array<std::string_view, 1> kTekkenPatterns{
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::array<std::string_view, 1> kO200kPatterns{
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::array<std::string_view, 1> kSeedPatterns{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1})"
    R"(| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::array<std::string_view, 3> kDeepseek3Patterns{
    R"(\p{N}{1,3})", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::array<std::string_view, 4> kDefaultPatterns{
    R"([\p{P}\$\+<=>\^~\|]+)",
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))", R"(\p{N}+)",
    "[0-9][0-9][0-9]"};

constexpr std::array kKnown{
    GgufPreTokenizer{.names = kSmollm, .patterns = {}, .digits_first = true, .gpt2_last = true},
    GgufPreTokenizer{.names = kGpt2, .patterns = {}, .gpt2_last = true},
    GgufPreTokenizer{
        .names = kLlama3, .patterns = kLlama3Patterns, .whole_words = true, .adds_bos = true},
    GgufPreTokenizer{.names = kSmaug, .patterns = kLlama3Patterns},
    GgufPreTokenizer{.names = kQwen2, .patterns = kQwen2Patterns, .nfc = true},
    GgufPreTokenizer{.names = kQwen35, .patterns = kQwen35Patterns, .nfc = true},
    GgufPreTokenizer{
        .names = kTekken, .patterns = kTekkenPatterns, .whole_words = true, .adds_bos = true},
    GgufPreTokenizer{.names = kO200k, .patterns = kO200kPatterns},
    GgufPreTokenizer{.names = kSeed, .patterns = kSeedPatterns},
    GgufPreTokenizer{.names = kDeepseek3, .patterns = kDeepseek3Patterns},
    GgufPreTokenizer{.names = kDefault, .patterns = kDefaultPatterns},
};

}  // namespace

std::span<const GgufPreTokenizer> gguf_pre_tokenizers() { return kKnown; }

const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name) {
  const auto at = std::find_if(kKnown.begin(), kKnown.end(), [&](const GgufPreTokenizer& known) {
    return std::find(known.names.begin(), known.names.end(), name) != known.names.end();
  });
  return at == kKnown.end() ? nullptr : &*at;
}

std::string gguf_pre_tokenizer_names() {
  std::string all;
  for (const GgufPreTokenizer& known : kKnown)
    for (const std::string_view name : known.names)
      all.append(all.empty()                                              ? ""
                 : &known == &kKnown.back() && name == known.names.back() ? " and "
                                                                          : ", ")
          .append(name);
  return all;
}

}  // namespace canopy::text
