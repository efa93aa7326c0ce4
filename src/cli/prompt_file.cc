#include "src/cli/prompt_file.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "src/base/error.h"
#include "src/cli/command.h"

namespace canopy::cli {

std::vector<std::string> read_prompt_file(const std::string& path) {
  constexpr std::string_view kBlank = " \t\r";
  const std::string all = read_text(path);
  std::vector<std::string> prompts;
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
      prompts.emplace_back(line.substr(0, line.find_last_not_of('\r') + 1));
      continue;
    }
    const auto object = nlohmann::json::parse(line, nullptr, false);
    const auto where = path + " line " + std::to_string(number) + ": ";
    if (object.is_discarded()) throw Error(where + "this is not JSON, but the first prompt is");
    const auto text = object.is_object() ? object.value("text", nlohmann::json()) : object;
    if (!object.is_object() || !text.is_string() || text.get<std::string>().empty())
      throw Error(where + "a prompt is an object with a \"text\" that is not empty");
    prompts.push_back(text.get<std::string>());
  }
  if (prompts.empty()) throw Error(path + ": there is no prompt in it");
  return prompts;
}

}  // namespace canopy::cli
