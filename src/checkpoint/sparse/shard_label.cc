#include "src/checkpoint/sparse/shard_label.h"

#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/base/json.h"

namespace canopy {

namespace {

constexpr int kVersion = 1;

template <class Integer>
Integer integer_at(const nlohmann::json& json, const char* key) {
  const auto at = json.find(key);
  const auto value = at == json.end() ? std::nullopt : integer_in<Integer>(*at);
  if (!value) throw Error(std::string(key) + " is no whole number, or missing");
  return *value;
}

ShardLabel label_of(const nlohmann::json& json) {
  if (!json.is_object()) throw Error("it is no object");
  if (const int version = integer_at<int>(json, "version"); version != kVersion)
    throw Error("it has version " + std::to_string(version) + ", and this program reads " +
                std::to_string(kVersion));
  ShardLabel label;
  label.rank = integer_at<int>(json, "rank");
  label.block = integer_at<std::int64_t>(json, "block");
  const auto shares = json.find("shares");
  if (shares == json.end() || !shares->is_array()) throw Error("shares is no list, or missing");
  for (const nlohmann::json& one : *shares) {
    const auto part = integer_in<std::int64_t>(one);
    if (!part || *part < 1) throw Error("shares has something else than numbers above 0");
    label.parts.push_back(*part);
  }
  if (label.block < 1) throw Error("block is below 1");
  if (label.rank < 0 || label.rank >= static_cast<int>(label.parts.size()))
    throw Error("rank is not one of the shares");
  const auto fingerprint = json.find("fingerprint");
  if (fingerprint == json.end() || !fingerprint->is_string())
    throw Error("fingerprint is no text, or missing");
  label.fingerprint = fingerprint->get<std::string>();
  return label;
}

}  // namespace

std::string to_json(const ShardLabel& label) {
  const nlohmann::ordered_json json{{"version", kVersion},
                                    {"rank", label.rank},
                                    {"shares", label.parts},
                                    {"block", label.block},
                                    {"fingerprint", label.fingerprint}};
  return json.dump(2) + "\n";
}

std::string in_words(const ShardLabel& label) {
  std::string parts;
  for (const std::int64_t part : label.parts) {
    if (!parts.empty()) parts += ':';
    parts += std::to_string(part);
  }
  return "the rows of rank " + std::to_string(label.rank) + " of " +
         std::to_string(label.parts.size()) + ", with --shares " + parts;
}

std::optional<ShardLabel> read_shard_label(const std::filesystem::path& model) {
  std::error_code ignored;
  const bool directory = std::filesystem::is_directory(model, ignored);
  const std::filesystem::path file = (directory ? model : model.parent_path()) / kShardFile;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  const nlohmann::json json = read_json(file, kMostSettingsBytes, FileKind::kOfModel);
  return in_context("reading " + file.string(), [&] { return label_of(json); });
}

}  // namespace canopy
