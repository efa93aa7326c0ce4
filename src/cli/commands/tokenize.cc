// canopy tokenize: text to token ids; canopy detokenize: back.
#include <charconv>
#include <iostream>
#include <limits>
#include <optional>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/json_text.h"
#include "src/checkpoint/checkpoint.h"
#include "src/cli/commands/commands.h"
#include "src/cli/options/model/hub_model.h"
#include "src/cli/options/model/model_options.h"
#include "src/cli/options/values.h"
#include "src/cli/output/standard_output.h"
#include "src/text/tokenizer.h"

namespace canopy::cli {

namespace {

constexpr const char* kTokenizeUsage =
    "usage: canopy tokenize -m MODEL [-p TEXT] [--json] [--no-special]\n"
    "       canopy tokenize MODEL [TEXT]\n\n"
    "Prints the token ids of a text, of standard input where no flag gives one. Special tokens "
    "written in the text are\n"
    "recognised.";

constexpr const char* kDetokenizeUsage =
    "usage: canopy detokenize -m MODEL < IDS\n\n"
    "Prints the text of the token ids on standard input, separated by spaces or commas, or as the\n"
    "JSON that canopy tokenize writes. Special tokens are spelled out.";

struct Options {
  std::string model;
  std::optional<std::string> prompt;
  bool json = false, no_special = false;

  Flags detokenize_flags() {
    Flags flags;
    add_model_flag(flags, model);
    return flags;
  }
  Flags tokenize_flags() {
    Flags flags = detokenize_flags();
    flags.add_options()  //
        ("prompt,p", into(prompt, "TEXT"),
         "the text; -p may be left out after the model; - reads stdin")  //
        ("json", given(json), "print {\"tokens\":[...]}")                //
        ("no-special", given(no_special),
         "do not add what the model expects around a text (BOS, EOS)");
    return flags;
  }
};

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path) {
  const Checkpoint model =
      Checkpoint::open(local_model(path), Holes::kAllowed);  // no weight is read
  return load_tokenizer(model.root(), model.metadata(), model.config().vocab);
}

std::vector<TokenId> ids_from_json(const std::string& text) {
  const nlohmann::json document =
      in_context("reading standard input", [&] { return parse_json(text); });
  const nlohmann::json& list =
      document.is_object() && document.contains("tokens") ? document.at("tokens") : document;
  if (!list.is_array()) throw Error("standard input has no list of \"tokens\"");
  std::vector<TokenId> ids;
  for (const nlohmann::json& id : list) {
    if (!id.is_number_unsigned() || id > std::numeric_limits<TokenId>::max())
      throw Error("entry " + std::to_string(ids.size()) + " of \"tokens\" is not a token id");
    ids.push_back(id);
  }
  return ids;
}

/// Ids separated by white space or commas.
std::vector<TokenId> ids_from_list(std::string_view text) {
  constexpr std::string_view kBetween = " \t\r\n,";
  std::vector<TokenId> ids;
  for (std::size_t at = 0; (at = text.find_first_not_of(kBetween, at)) != std::string_view::npos;) {
    const std::string_view word = text.substr(at, text.find_first_of(kBetween, at) - at);
    TokenId id = 0;
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (problem != std::errc{} || end != word.data() + word.size())
      throw Error("'" + std::string(word.substr(0, 40)) + "' (byte " + std::to_string(at) +
                  " of standard input) is not a token id");
    ids.push_back(id);
    at += word.size();
  }
  return ids;
}

}  // namespace

int run_tokenize(const std::vector<std::string>& words) {
  Options options;
  if (!parse(words, kTokenizeUsage, options.tokenize_flags(), Environment::kIgnored,
             BareWords::kModelAndPrompt))
    return 0;
  const AddSpecial add = options.no_special ? AddSpecial::kNo : AddSpecial::kYes;
  const std::string text = options.prompt.value_or("-");
  const std::vector<TokenId> ids =
      open_tokenizer(options.model)->encode(text == "-" ? read_text("-") : text, add);
  if (options.json) {
    write_out(json_text(nlohmann::json{{"tokens", ids}}) + "\n");
    return 0;
  }
  std::string line;
  for (const TokenId id : ids) {
    if (!line.empty()) line += ' ';
    line += std::to_string(id);
  }
  write_out(line + "\n");
  return 0;
}

int run_detokenize(const std::vector<std::string>& words) {
  Options options;
  if (!parse(words, kDetokenizeUsage, options.detokenize_flags())) return 0;
  const auto tokenizer = open_tokenizer(options.model);
  const std::string text = read_text("-");
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && (text[first] == '{' || text[first] == '[');
  write_out(tokenizer->decode(json ? ids_from_json(text) : ids_from_list(text), AddSpecial::kYes));
  return 0;
}

}  // namespace canopy::cli
