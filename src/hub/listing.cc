#include "src/hub/listing.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/json_text.h"
#include "src/base/utf8.h"
#include "src/hub/repository.h"

namespace canopy::hub {

namespace {

using nlohmann::json;

/// The text that `object` has under this name; "" where there is none.
std::string text_in(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

RemoteFile read_file_entry(const json& entry) {
  RemoteFile file;
  if (entry.is_object()) file.name = text_in(entry, "rfilename");
  if (!stays_inside(file.name))
    throw Error("a file's name, " + in_quotes(file.name) +
                ", leads out of the repository's folder");
  if (const auto bytes = entry.find("size"); bytes != entry.end())
    file.bytes = integer_in<std::uint64_t>(*bytes);
  if (const auto lfs = entry.find("lfs"); lfs != entry.end() && lfs->is_object()) {
    file.sha256 = text_in(*lfs, "sha256");
    if (!is_sha256(file.sha256)) file.sha256.clear();
  }
  return file;
}

}  // namespace

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

const RemoteFile* Listing::find(std::string_view name) const {
  const auto at = std::find_if(files.begin(), files.end(),
                               [&](const RemoteFile& file) { return file.name == name; });
  return at == files.end() ? nullptr : &*at;
}

Listing parse_listing(std::string_view text) {
  const json document = parse_json(text);
  Listing listing;
  if (document.is_object()) listing.commit = text_in(document, "sha");
  if (!is_commit(listing.commit)) throw Error("it names no commit");
  const auto files = document.find("siblings");
  if (files == document.end() || !files->is_array()) throw Error("it lists no files");
  for (const json& entry : *files) listing.files.push_back(read_file_entry(entry));
  return listing;
}

std::string to_json(const Listing& listing) {
  json files = json::array();
  for (const RemoteFile& file : listing.files) {
    json entry = {{"rfilename", file.name}};
    if (file.bytes) entry["size"] = *file.bytes;
    if (!file.sha256.empty()) entry["lfs"] = {{"sha256", file.sha256}};
    files.push_back(std::move(entry));
  }
  return json_text(json{{"sha", listing.commit}, {"siblings", std::move(files)}});
}

}  // namespace canopy::hub
