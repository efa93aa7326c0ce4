#include "src/cli/options/prompt_file.h"

#include <string_view>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/cli/options/values.h"
#include "src/measure/calibration_prompts.h"
#include "src/measure/rouge.h"

namespace canopy::cli {

namespace {

/// A parsed object may take thirty times its line; a megabyte of prompt is beyond any context.
constexpr std::size_t kMostLine = 1 << 20;

PromptText prompt_of(std::string_view line) {
  if (line.size() > kMostLine)
    throw Error("this line has more than " + std::to_string(kMostLine) + " bytes");
  const nlohmann::json object = parse_json(line);
  const auto text = object.is_object() ? object.find("text") : object.end();
  if (text == object.end() || !text->is_string() || text->get_ref<const std::string&>().empty())
    throw Error("a prompt is an object with a \"text\" that is not empty");
  PromptText prompt{.text = text->get<std::string>()};
  if (const auto reference = object.find("reference"); reference != object.end()) {
    if (!reference->is_string() || rouge_words(reference->get_ref<const std::string&>()).empty())
      throw Error("a \"reference\" is a text with words of a to z or digits, which ROUGE counts");
    prompt.reference = reference->get<std::string>();
  }
  return prompt;
}

}  // namespace

std::vector<PromptText> read_prompt_file(const std::string& path, const std::stop_token& stop) {
  constexpr std::string_view kBlank = " \t\r";
  const std::string all = read_text(path, kMostTextBytes, stop);
  std::vector<PromptText> prompts;
  int number = 0;
  bool as_json = false;
  for (std::string_view rest = all; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    ++number;
    const std::size_t first = line.find_first_not_of(kBlank);
    if (first == std::string_view::npos) continue;
    if (prompts.empty()) as_json = line[first] == '{';
    if (!as_json) {
      prompts.push_back({std::string(line.substr(0, line.find_last_not_of('\r') + 1))});
      continue;
    }
    prompts.push_back(in_context("reading " + path + " line " + std::to_string(number),
                                 [&] { return prompt_of(line); }));
  }
  if (prompts.empty()) throw Error(path + ": there is no prompt in it");
  return prompts;
}

std::vector<PromptText> read_prompts(const std::optional<std::string>& file,
                                     const std::stop_token& stop) {
  if (file) return read_prompt_file(*file, stop);
  std::vector<PromptText> prompts;
  for (std::string& text : default_prompts()) prompts.push_back({std::move(text)});
  return prompts;
}

std::string prompts_name(const std::optional<std::string>& file) {
  return file.value_or("the default set");
}

std::vector<std::string> texts_of(std::span<const PromptText> prompts) {
  std::vector<std::string> texts;
  for (const PromptText& prompt : prompts) texts.push_back(prompt.text);
  return texts;
}

}  // namespace canopy::cli
