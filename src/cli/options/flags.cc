#include "src/cli/options/flags.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iostream>

#include "src/base/error.h"
#include "src/cli/options/spelling.h"
#include "src/cli/output/aside.h"
#include "src/hub/repository.h"

namespace canopy::cli {

namespace po = boost::program_options;

namespace {

namespace style = po::command_line_style;
constexpr int kStyle = style::allow_long | style::long_allow_adjacent | style::long_allow_next |
                       style::allow_short | style::allow_dash_for_short | style::short_allow_next;

/// llama.cpp's long flags with one dash, and what they are called here.
constexpr std::array<std::array<std::string_view, 2>, 11> kOneDash{{{"-hf", "hf-repo"},
                                                                    {"-hfd", "hf-repo-draft"},
                                                                    {"-md", "model-draft"},
                                                                    {"-mdd", "model-draft-draft"},
                                                                    {"-ctk", "cache-type-k"},
                                                                    {"-ctv", "cache-type-v"},
                                                                    {"-ngl", "n-gpu-layers"},
                                                                    {"-sys", "system-prompt"},
                                                                    {"-np", "parallel"},
                                                                    {"-fa", "flash-attn"},
                                                                    {"-ub", "ubatch-size"}}};

/// llama.cpp's flag whose value may be left out: a word after it is its value only if it is one.
constexpr std::string_view kSwitch = "flash-attn";
void take_setting(std::vector<std::string>& words, po::option& flag) {
  const bool given =
      !words.empty() && (words[0] == "on" || words[0] == "off" || words[0] == "auto");
  flag.value.push_back(given ? words.front() : "on");
  if (given) words.erase(words.begin());
}

/// Boost's parsers would take "-cnv" for -c with the value "nv". Here a word of one dash and
/// several letters is a flag of its own, one of the above or unknown.
std::vector<po::option> parse_one_dash(std::vector<std::string>& words) {
  const std::string word = words.front();
  if (word == "--" + std::string(kSwitch)) {
    po::option flag;
    flag.string_key = kSwitch;
    flag.original_tokens.push_back(word);
    words.erase(words.begin());
    take_setting(words, flag);
    return {flag};
  }
  if (word.size() < 3 || word[0] != '-' || !std::isalpha(static_cast<unsigned char>(word[1])))
    return {};
  po::option flag;
  flag.string_key = word;
  for (const auto& [brief, full] : kOneDash)
    if (word == brief) flag.string_key = full;
  flag.original_tokens.push_back(word);
  words.erase(words.begin());
  if (flag.string_key == kSwitch) take_setting(words, flag);
  return {flag};
}

std::vector<std::string> names_of(const Flags& flags) {
  std::vector<std::string> names;
  for (const auto& option : flags.options()) {
    const auto [long_names, count] = option->long_names();
    for (std::size_t i = 0; i < count; ++i) names.push_back("--" + long_names[i]);
    if (const std::string brief = option->canonical_display_name(style::allow_dash_for_short);
        brief.size() == 2)
      names.push_back(brief);
    for (const auto& [brief, full] : kOneDash)
      if (count > 0 && full == long_names[0]) names.emplace_back(brief);
  }
  return names;
}

UsageError unknown_flag(std::string flag, const Flags& flags) {
  flag.resize(std::min(flag.find('='), flag.size()));
  const std::vector<std::string> known = names_of(flags);
  const bool value_inside = flag.size() > 2 && std::isdigit(static_cast<unsigned char>(flag[2])) &&
                            std::find(known.begin(), known.end(), flag.substr(0, 2)) != known.end();
  return UsageError("unknown flag " + flag +
                    (value_inside
                         ? "; did you mean " + flag.substr(0, 2) + " " + flag.substr(2) + "?"
                         : did_you_mean(flag, known)));
}

bool has(const po::parsed_options& parsed, std::string_view name) {
  return std::any_of(parsed.options.begin(), parsed.options.end(),
                     [&](const po::option& option) { return option.string_key == name; });
}

/// Makes -hf REPO the model hf:REPO, and -hfd the draft. Throws UsageError: no name of a
/// repository, or a model that is named by its path, too.
void name_by_repository(po::parsed_options& parsed, const Flags& flags) {
  static constexpr std::array<std::array<std::string_view, 2>, 2> kPlaces{
      {{"hf-repo", "model"}, {"hf-repo-draft", "model-draft"}}};
  for (const auto& [flag, place] : kPlaces) {
    if (flags.find_nothrow(std::string(place), false) == nullptr) continue;
    const auto names_path = [place = place](const po::option& option) {
      return option.string_key == place && option.position_key < 0;
    };
    for (po::option& option : parsed.options) {
      if (option.string_key != flag) continue;
      if (std::any_of(parsed.options.begin(), parsed.options.end(), names_path))
        throw UsageError("--" + std::string(place) + ", --" + std::string(flag) +
                         ": a model is named by one of the two, once");
      try {
        hub::parse_repository(option.value.front());
      } catch (const Error& e) {
        throw UsageError("--" + std::string(flag) + ": " + e.what());
      }
      option.string_key = place;
      option.value.front().insert(0, kHubPrefix);
    }
  }
}

/// One word without a flag is the model, where a command takes one.
void check_words(const po::parsed_options& parsed) {
  bool model =
      std::any_of(parsed.options.begin(), parsed.options.end(), [](const po::option& option) {
        return option.string_key == "model" && option.position_key < 0;
      });
  for (const po::option& option : parsed.options) {
    if (option.string_key != "model") continue;
    if (model && option.position_key >= 0)
      throw UsageError("'" + option.value.front() +
                       "' belongs to no flag, and the model is given already; a text of several "
                       "words needs quotes");
    model = true;
  }
}

/// Makes the first word without a flag after the model the --prompt, unless a flag gives it.
void take_prompt(po::parsed_options& parsed) {
  const auto is_bare = [](const po::option& option) {
    return option.string_key == "model" && option.position_key >= 0;
  };
  bool model = std::any_of(
      parsed.options.begin(), parsed.options.end(),
      [&](const po::option& option) { return option.string_key == "model" && !is_bare(option); });
  for (po::option& option : parsed.options) {
    if (!is_bare(option)) continue;
    if (model && !has(parsed, "prompt")) option.string_key = "prompt";
    model = true;
  }
}

constexpr std::string_view kVariable = "CANOPY_ARG_";

/// The flag that a variable of the environment gives a value; "" for a variable that is not ours.
std::string flag_of(const std::string& variable, const Flags& flags) {
  if (!variable.starts_with(kVariable)) return "";
  std::string name = variable.substr(kVariable.size());
  for (char& c : name)
    c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (name == "help" || flags.find_nothrow(name, false) == nullptr)
    throw UsageError(variable + " in the environment: unknown flag --" + name +
                     did_you_mean("--" + name, names_of(flags)));
  return name;
}

void add_to(GivenFlags& given, const po::option& option) {
  std::string value;
  for (const std::string& one : option.value) value += (value.empty() ? "" : " ") + one;
  given.push_back({option.string_key, std::move(value)});
}

/// Stores what the words leave open; they count where both say something.
void store_environment(const Flags& flags, po::variables_map& values, GivenFlags& given) {
  const auto name = [&](const std::string& variable) { return flag_of(variable, flags); };
  po::parsed_options parsed = po::parse_environment(flags, name);
  name_by_repository(parsed, flags);
  for (const po::option& option : parsed.options)
    if (values.count(option.string_key) == 0 || values[option.string_key].defaulted()) {
      aside() << "note: --" << option.string_key << " is taken from the environment\n";
      add_to(given, option);
    }
  po::store(parsed, values);
}

}  // namespace

bool parse(const std::vector<std::string>& words, std::string_view usage, Flags flags,
           Environment environment, BareWords bare, GivenFlags* given_flags) {
  bool quiet = false;
  flags.add_options()                                                //
      ("quiet", given(quiet), "no notes and no progress on stderr")  //
      ("help,h", "print this and exit");
  const auto print_help = [&] { std::cout << usage << "\n\n" << flags; };
  if (words == std::vector<std::string>{"help"}) {
    print_help();
    return false;
  }
  po::positional_options_description positional;
  for (const char* const named : {"model", "hf-repo"})
    if (positional.max_total_count() == 0 && flags.find_nothrow(named, false) != nullptr)
      positional.add(named, -1);
  po::variables_map values;
  try {
    po::parsed_options parsed = po::command_line_parser(words)
                                    .options(flags)
                                    .positional(positional)
                                    .extra_style_parser(parse_one_dash)
                                    .style(kStyle)
                                    .run();
    if (has(parsed, "help")) {
      print_help();
      return false;
    }
    if (has(parsed, "quiet")) be_quiet();  // before the first note
    name_by_repository(parsed, flags);
    if (bare == BareWords::kModelAndPrompt) take_prompt(parsed);
    check_words(parsed);
    po::store(parsed, values);
    GivenFlags all;
    for (const po::option& option : parsed.options) add_to(all, option);
    if (environment == Environment::kTaken) store_environment(flags, values, all);
    if (given_flags) *given_flags = std::move(all);
    if (values["quiet"].as<bool>()) be_quiet();
    po::notify(values);
  } catch (const po::unknown_option& e) {
    throw unknown_flag(e.get_option_name(), flags);
  } catch (const po::too_many_positional_options_error&) {
    throw UsageError("takes no word without a flag");
  } catch (const po::error& e) {
    throw UsageError(e.what());
  }
  return true;
}

}  // namespace canopy::cli
