#include "src/hub/repository.h"

#include <algorithm>
#include <array>

#include "src/base/error.h"
#include "src/base/utf8.h"

namespace canopy::hub {

namespace {

constexpr std::size_t kMostIdBytes = 192;  // two names of 96

// Knows ASCII alone, whatever the locale.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_name(std::string_view name) {
  const auto allowed = [](char c) {
    return is_letter(c) || is_digit(c) || c == '-' || c == '_' || c == '.';
  };
  const auto at_end = [](char c) { return c != '-' && c != '.'; };
  return !name.empty() && std::all_of(name.begin(), name.end(), allowed) && at_end(name.front()) &&
         at_end(name.back()) && name.find("--") == name.npos && name.find("..") == name.npos;
}

bool is_id(std::string_view id) {
  const std::size_t slash = id.find('/');
  if (id.size() > kMostIdBytes) return false;
  return slash == id.npos ? is_name(id)
                          : is_name(id.substr(0, slash)) && is_name(id.substr(slash + 1));
}

/// A part of a file's name, without what would lead out of it.
bool is_quant(std::string_view quant) {
  return !quant.empty() && std::all_of(quant.begin(), quant.end(), [](char c) {
    return is_letter(c) || is_digit(c) || c == '-' || c == '_' || c == '.' || c == '/';
  });
}

}  // namespace

std::string Repository::in_words() const {
  return id + (revision == "main" ? "" : "@" + revision) + (quant.empty() ? "" : ":" + quant);
}

Repository parse_repository(std::string_view text) {
  Repository repository;
  const std::string given = in_quotes(text);
  if (const std::size_t colon = text.find(':'); colon != text.npos) {
    repository.quant = text.substr(colon + 1);
    if (!is_quant(repository.quant))
      throw Error(given + ": after the colon stands part of a GGUF file's name, such as Q4_K_M");
    text = text.substr(0, colon);
  }
  if (const std::size_t at = text.find('@'); at != text.npos) {
    repository.revision = text.substr(at + 1);
    if (!stays_inside(repository.revision))
      throw Error(given + ": after the @ stands a branch, a tag or a commit");
    text = text.substr(0, at);
  }
  if (!is_id(text))
    throw Error(given +
                " is not a repository of the Hugging Face Hub; write ORG/NAME, ORG/NAME:Q4_K_M or "
                "ORG/NAME@REVISION");
  repository.id = text;
  return repository;
}

bool is_commit(std::string_view revision) {
  return revision.size() == 40 && std::all_of(revision.begin(), revision.end(), [](char c) {
           return is_digit(c) || (c >= 'a' && c <= 'f');
         });
}

bool stays_inside(std::string_view path) {
  constexpr std::size_t kMostBytes = 1024, kMostPart = 255;
  if (path.empty() || path.size() > kMostBytes || !is_utf8(path)) return false;
  for (const char c : path)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') return false;
  while (true) {
    const std::string_view part = path.substr(0, path.find('/'));
    if (part.empty() || part == "." || part == ".." || part.size() > kMostPart) return false;
    if (part.size() == path.size()) return true;
    path.remove_prefix(part.size() + 1);
  }
}

std::string url_part(std::string_view text, Slashes slashes) {
  static constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_letter(c) || is_digit(c) || c == '-' || c == '_' || c == '.' || c == '~' ||
        (c == '/' && slashes == Slashes::kKept)) {
      out += c;
    } else {
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  return out;
}

}  // namespace canopy::hub
