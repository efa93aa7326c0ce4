// A GGUF model that was split: NAME-00001-of-00003.gguf and so on. The first part has the keys of
// the whole model, each part its own tensors and split.no, split.count and split.tensors.count.
#include <cstdio>
#include <optional>

#include "src/base/error.h"
#include "src/checkpoint/readers.h"

namespace canopy {

namespace {

constexpr const char *kNumberKey = "split.no", *kCountKey = "split.count",
                     *kTensorsKey = "split.tensors.count";
constexpr std::int64_t kMostParts = 65535;  // the key has 16 bits, that of the tensors 32
constexpr std::int64_t kMostTensors = 0x7fffffff;

std::int64_t integer(const Metadata& metadata, const char* key, std::int64_t most) {
  const auto* const value = metadata.find<std::int64_t>(key);
  if (!value)
    throw Error(std::string("metadata key '") + key +
                "', which a part of a model needs, is missing or not an integer");
  if (*value < 0 || *value > most)
    throw Error(std::string("metadata key '") + key + "' is " + std::to_string(*value) +
                ", outside 0 to " + std::to_string(most));
  return *value;
}

/// "-00002-of-00003.gguf" for part 1 of 3, counted from 0.
std::string ending_of(std::int64_t part, std::int64_t count) {
  char text[48];
  std::snprintf(text, sizeof text, "-%05lld-of-%05lld.gguf", static_cast<long long>(part) + 1,
                static_cast<long long>(count));
  return text;
}

/// The names of a model's parts, from the file that says to be part `number` of them.
class PartNames {
 public:
  PartNames(const std::filesystem::path& file, std::int64_t number, std::int64_t count)
      : folder_(file.parent_path()), count_(count) {
    const std::string name = file.filename().string(), ending = ending_of(number, count);
    if (name.ends_with(ending)) stem_ = name.substr(0, name.size() - ending.size());
  }
  bool known() const { return stem_.has_value(); }
  std::filesystem::path path(std::int64_t part) const {
    return folder_ / (stem_.value_or("NAME") + ending_of(part, count_));
  }

 private:
  std::filesystem::path folder_;
  std::optional<std::string> stem_;
  std::int64_t count_;
};

std::string in_words(std::int64_t part, std::int64_t count) {
  return "part " + std::to_string(part + 1) + " of " + std::to_string(count);
}

GgufHeader read_part(const PartNames& names, std::int64_t part, std::int64_t count, Holes holes) {
  const std::filesystem::path path = names.path(part);
  std::error_code ignored;
  if (std::filesystem::status(path, ignored).type() == std::filesystem::file_type::not_found)
    throw Error(in_words(part, count) + " of the model, " + path.string() +
                ", is missing: put all parts into one folder");
  GgufHeader header = read_gguf(path, holes);
  in_context("reading " + path.string(), [&] {
    const std::int64_t number = integer(header.metadata, kNumberKey, kMostParts),
                       parts = integer(header.metadata, kCountKey, kMostParts);
    if (number != part || parts != count)
      throw Error("the file says that it is " + in_words(number, parts) + ", but its name means " +
                  in_words(part, count) + ": take all parts from one download, with their names");
  });
  return header;
}

}  // namespace

GgufModel read_gguf_model(const std::filesystem::path& file, Holes holes) {
  GgufModel model{read_gguf(file, holes), {file}};
  GgufHeader& whole = model.header;
  if (!whole.metadata.contains(kCountKey)) return model;
  const auto key = [&](const char* name, std::int64_t most) {
    return in_context("reading " + file.string(),
                      [&] { return integer(whole.metadata, name, most); });
  };
  const std::int64_t number = key(kNumberKey, kMostParts), count = key(kCountKey, kMostParts);
  const PartNames names(file, number, count);
  if (number != 0)
    throw Error(file.string() + " is " + in_words(number, count) +
                " of a model: give the first part, " + names.path(0).string());
  if (count > 1 && !names.known())
    throw Error(file.string() + " is " + in_words(0, count) + " of a model, but is not named " +
                names.path(0).filename().string() +
                ", so that the others cannot be found: give the parts their names again");
  const std::int64_t tensors = key(kTensorsKey, kMostTensors);
  for (std::int64_t part = 1; part < count; ++part) {
    for (TensorEntry& tensor : read_part(names, part, count, holes).tensors) {
      tensor.file = static_cast<int>(part);
      whole.tensors.push_back(std::move(tensor));
    }
    model.files.push_back(names.path(part));
  }
  if (std::ssize(whole.tensors) != tensors)
    throw Error(file.string() + " and its other parts hold " +
                std::to_string(whole.tensors.size()) + " tensors, but it speaks of " +
                std::to_string(tensors) + ": take all parts from one download");
  in_context("reading the parts of " + file.string(), [&] { require_disjoint(whole.tensors); });
  return model;
}

}  // namespace canopy
