#include "src/hub/pick.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/utf8.h"
#include "src/hub/repository.h"

namespace canopy::hub {

namespace {

/// The order in which llama.cpp's -hf looks where no quant is named.
constexpr std::array<std::string_view, 2> kUsualQuants{"q4_k_m", "q4_0"};
constexpr std::string_view kSingle = "model.safetensors", kIndex = "model.safetensors.index.json",
                           kConfig = "config.json", kGguf = ".gguf";
/// Files next to safetensors that commands read.
constexpr std::array<std::string_view, 13> kOfFolder{kConfig,
                                                     "generation_config.json",
                                                     "hf_quant_config.json",
                                                     "tokenizer.json",
                                                     "tokenizer_config.json",
                                                     "special_tokens_map.json",
                                                     "added_tokens.json",
                                                     "tokenizer.model",
                                                     "tekken.json",
                                                     "vocab.json",
                                                     "merges.txt",
                                                     "chat_template.json",
                                                     "chat_template.jinja"};
constexpr std::string_view kMoreTemplates = "additional_chat_templates/";
constexpr std::size_t kMostNamed = 40;  // in a message

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

/// A GGUF model: a file, or the parts of one.
struct Gguf {
  std::string stem;  // the name, without what counts the parts
  int parts = 1;     // as the names say
  std::vector<std::string> files;
};

/// "-00002-of-00003" at the end of a name without its ".gguf".
struct PartNumber {
  int part, of;
};
std::optional<PartNumber> part_number(std::string_view name) {
  constexpr std::size_t kBytes = 15;
  if (name.size() <= kBytes) return std::nullopt;
  const std::string_view end = name.substr(name.size() - kBytes);
  PartNumber number{};
  const auto digits = [&](std::size_t at, int& value) {
    const char* const from = end.data() + at;
    return std::from_chars(from, from + 5, value).ptr == from + 5;
  };
  if (end[0] != '-' || end.substr(6, 4) != "-of-" || !digits(1, number.part) ||
      !digits(10, number.of))
    return std::nullopt;
  return number;
}

/// The GGUF models of a repository by their names; not what goes with one, such as a projector of
/// images or an importance matrix.
std::vector<Gguf> gguf_models(const std::vector<RemoteFile>& files) {
  std::map<std::pair<std::string, int>, Gguf> models;  // by stem and parts
  for (const RemoteFile& file : files) {
    const std::string name = lower(file.name);
    const std::string own = name.substr(name.rfind('/') + 1);
    if (!name.ends_with(kGguf) || own.find("mmproj") != own.npos || own.find("imatrix") != own.npos)
      continue;
    const std::string whole = file.name.substr(0, file.name.size() - kGguf.size());
    const auto number = part_number(whole);
    const std::string stem = number ? whole.substr(0, whole.size() - 15) : whole;
    const int parts = number ? number->of : 1;
    Gguf& model = models[{stem, parts}];
    model.stem = stem;
    model.parts = parts;
    model.files.push_back(file.name);
  }
  std::vector<Gguf> out;
  for (auto& [key, model] : models) {
    std::sort(model.files.begin(), model.files.end());
    out.push_back(std::move(model));
  }
  return out;
}

/// True if `quant`, in small letters, stands in the name between other characters than letters,
/// digits and underscores.
bool has_quant(const std::string& stem, const std::string& quant) {
  const auto inside = [](char c) {
    return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0;
  };
  const std::string name = lower(stem);
  for (std::size_t at = 0; (at = name.find(quant, at)) != name.npos; ++at) {
    const std::size_t end = at + quant.size();
    if ((at == 0 || !inside(name[at - 1])) && (end == name.size() || !inside(name[end])))
      return true;
  }
  return false;
}

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMostNamed); ++i)
    text += (i == 0 ? "" : ", ") + printable(names[i], 200);
  if (names.size() > kMostNamed)
    text += " and " + std::to_string(names.size() - kMostNamed) + " more";
  return text.empty() ? "nothing" : text;
}

std::string list_of(const std::vector<Gguf>& models) {
  std::vector<std::string> names;
  for (const Gguf& model : models)
    names.push_back(model.stem +
                    (model.parts == 1 ? "" : " (" + std::to_string(model.parts) + " parts)"));
  return list_of(names);
}

std::vector<Gguf> with_quant(const std::vector<Gguf>& models, const std::string& quant) {
  std::vector<Gguf> matching;
  for (const Gguf& model : models)
    if (has_quant(model.stem, quant)) matching.push_back(model);
  return matching;
}

const Gguf& only_of(const std::vector<Gguf>& matching, std::string_view quant) {
  if (matching.size() > 1)
    throw Error(std::string(quant) + " is of several GGUF models: " + list_of(matching) +
                "; give more of the name after the colon");
  return matching.front();
}

Gguf choose(const std::vector<Gguf>& models, std::string_view quant) {
  if (!quant.empty()) {
    const std::vector<Gguf> matching = with_quant(models, lower(quant));
    if (matching.empty())
      throw Error("no GGUF file has " + in_quotes(quant) + " in its name; there are " +
                  list_of(models));
    return only_of(matching, quant);
  }
  for (const std::string_view usual : kUsualQuants)
    if (const auto matching = with_quant(models, std::string(usual)); !matching.empty())
      return only_of(matching, usual);
  return models.front();
}

Pick pick_gguf(const Gguf& model) {
  if (model.files.size() != static_cast<std::size_t>(model.parts))
    throw Error(model.stem + " was split into " + std::to_string(model.parts) +
                " parts, and the repository has " + std::to_string(model.files.size()) +
                " of them");
  return {model.files.front(), model.files};
}

bool is_template(std::string_view name) {
  return name.starts_with(kMoreTemplates) && name.ends_with(".jinja") &&
         name.find('/', kMoreTemplates.size()) == name.npos;
}

Pick pick_folder(const std::vector<RemoteFile>& files) {
  const auto has = [&](std::string_view name) {
    return std::any_of(files.begin(), files.end(),
                       [&](const RemoteFile& file) { return file.name == name; });
  };
  const bool single = has(kSingle);
  if (!has(kConfig) || !(single || has(kIndex))) {
    std::vector<std::string> names;
    for (const RemoteFile& file : files) names.push_back(file.name);
    throw Error(
        "there is neither a GGUF file nor a config.json with model.safetensors or its "
        "index; there are " +
        list_of(names));
  }
  Pick pick;
  pick.by_index = !single;
  if (!single) pick.files.emplace_back(kIndex);
  for (const RemoteFile& file : files)
    if (std::find(kOfFolder.begin(), kOfFolder.end(), file.name) != kOfFolder.end() ||
        is_template(file.name))
      pick.files.push_back(file.name);
  if (single) pick.files.emplace_back(kSingle);
  return pick;
}

}  // namespace

Pick pick_files(const std::vector<RemoteFile>& files, std::string_view quant) {
  const std::vector<Gguf> models = gguf_models(files);
  if (!models.empty()) return pick_gguf(choose(models, quant));
  if (!quant.empty())
    throw Error("there is no GGUF file for " + in_quotes(quant) +
                "; a folder of safetensors has no name after a colon");
  return pick_folder(files);
}

Pick with_shards(Pick pick, std::string_view index, const std::vector<RemoteFile>& files) {
  if (!pick.by_index) return pick;
  const nlohmann::json document = parse_json(index);
  const auto map = document.is_object() ? document.find("weight_map") : document.end();
  if (!document.is_object() || map == document.end() || !map->is_object())
    throw Error("it has no object \"weight_map\"");
  std::set<std::string> shards;
  for (const nlohmann::json& shard : *map) {
    if (!shard.is_string()) throw Error("a value of \"weight_map\" is no file's name");
    shards.insert(shard.get<std::string>());
  }
  for (const std::string& shard : shards) {
    if (!stays_inside(shard))
      throw Error("the shard " + in_quotes(shard) + " leads out of the repository's folder");
    if (std::none_of(files.begin(), files.end(),
                     [&](const RemoteFile& file) { return file.name == shard; }))
      throw Error("the shard " + in_quotes(shard) + " is not among the files");
    pick.files.push_back(shard);
  }
  return pick;
}

}  // namespace canopy::hub
