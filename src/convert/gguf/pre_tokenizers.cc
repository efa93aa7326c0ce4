#include "src/convert/gguf/pre_tokenizers.h"

#include "src/base/error.h"

namespace canopy {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

ordered_json split(std::string_view pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

ordered_json sequence(ordered_json parts) {
  return {{"type", "Sequence"}, {"pretokenizers", std::move(parts)}};
}

/// A regular expression with its line ends escaped: as themselves they mean the same.
std::string escaped(const std::string& pattern) {
  std::string out;
  for (const char c : pattern) out += c == '\r' ? "\\r" : c == '\n' ? "\\n" : std::string(1, c);
  return out;
}

/// Keeps what decides how a part cuts, without what does not (trim_offsets) and with the defaults
/// filled in.
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
    const json pattern = part.value("pattern", json());
    if (pattern.is_object() && pattern.contains("Regex") && pattern["Regex"].is_string())
      told.back()["pattern"]["Regex"] = escaped(pattern["Regex"].get<std::string>());
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

ordered_json pre_tokenizer_json(const text::GgufPreTokenizer& pre) {
  ordered_json parts = ordered_json::array();
  if (pre.digits_first) parts.push_back({{"type", "Digits"}, {"individual_digits", true}});
  for (const std::string_view pattern : pre.patterns) parts.push_back(split(pattern));
  parts.push_back(byte_level_json(pre.gpt2_last));
  return parts.size() == 1 ? parts[0] : sequence(std::move(parts));
}

const text::GgufPreTokenizer& known_pre_tokenizer(const json& tokenizer) {
  const std::string given = signature(tokenizer.value("pre_tokenizer", json()));
  const json normalizer = tokenizer.value("normalizer", json());
  const bool nfc = normalizer.is_object() && normalizer.value("type", "") == "NFC";
  const bool whole_words = tokenizer.at("model").value("ignore_merges", false);
  std::string cuts_alike;
  for (const text::GgufPreTokenizer& known : text::gguf_pre_tokenizers()) {
    const ordered_json part = pre_tokenizer_json(known);
    // A lone part may also stand in a sequence of one.
    if (given != signature(part) && given != signature(sequence(ordered_json::array({part}))))
      continue;
    if (known.whole_words == whole_words && known.nfc == nfc && (nfc || normalizer.is_null()))
      return known;
    cuts_alike = known.names.front();
  }
  if (cuts_alike.empty())
    throw Error("the pre_tokenizer is none that GGUF knows by name (" +
                text::gguf_pre_tokenizer_names() + ")");
  throw Error("normalizer " + normalizer.dump() + " and ignore_merges " +
              (whole_words ? "true" : "false") +
              " have no counterpart in GGUF with pre-tokenizer " + cuts_alike);
}

}  // namespace canopy
