#include "src/convert/gguf/pre_tokenizers.h"

#include <array>
#include <initializer_list>
#include <vector>

#include "src/base/error.h"
#include "src/base/utf8.h"

namespace canopy {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr std::array kNames{"smollm", "llama-bpe", "qwen2", "gpt-2", "default"};

ordered_json split(const char* pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

ordered_json sequence(std::initializer_list<ordered_json> parts) {
  return {{"type", "Sequence"}, {"pretokenizers", ordered_json(std::vector<ordered_json>(parts))}};
}

/// What decides how a part cuts, without what does not (trim_offsets) and with the defaults filled
/// in.
std::string signature(const json& part) {
  if (!part.is_object()) return "?";
  const std::string type = part.value("type", "?");
  if (type == "Sequence") {
    std::string all;
    for (const json& inner : part.value("pretokenizers", json::array()))
      all += signature(inner) + "\n";
    return all;
  }
  json told = {type};
  if (type == "ByteLevel") {
    told.push_back(part.value("add_prefix_space", true));
    told.push_back(part.value("use_regex", true));
  } else if (type == "Digits") {
    told.push_back(part.value("individual_digits", false));
  } else {
    told.push_back(part);
  }
  return told.dump();
}

}  // namespace

ordered_json byte_level_json(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

ordered_json pre_tokenizer_json(const std::string& name) {
  if (name == "smollm")
    return sequence({{{"type", "Digits"}, {"individual_digits", true}}, byte_level_json(true)});
  if (name == "llama-bpe")
    return sequence(
        {split("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
               "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
         byte_level_json(false)});
  if (name == "qwen2")
    return sequence({split("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
                           "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
                     byte_level_json(false)});
  if (name == "gpt-2") return byte_level_json(true);
  if (name == "default")  // each pattern cuts further what the one before left
    return sequence({split("[\\p{P}\\$\\+<=>\\^~\\|]+"),
                     split("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
                           "\\s+(?!\\S)"),
                     split("\\p{N}+"), split("[0-9][0-9][0-9]"), byte_level_json(false)});
  throw Error("pre-tokenizer " + in_quotes(name) +
              " (key tokenizer.ggml.pre) cannot be written as tokenizer.json; known: smollm, "
              "llama-bpe, qwen2, gpt-2, default");
}

std::string pre_tokenizer_name(const json& pre_tokenizer) {
  const std::string told = signature(pre_tokenizer);
  const auto same = [&](const ordered_json& known) {
    // A lone part may also stand in a sequence of one.
    return told == signature(known) || told == signature(sequence({known}));
  };
  for (const char* name : kNames)
    if (same(pre_tokenizer_json(name))) return name;
  return "";
}

}  // namespace canopy
