#include "src/hub/settings.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/utf8.h"

namespace canopy::hub {

namespace {

namespace fs = std::filesystem;

/// A variable that is set to nothing counts as not set.
std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// A path in which ~ at the beginning is the user's home.
fs::path path_of(const std::string& text) {
  if (text != "~" && !text.starts_with("~/")) return fs::absolute(text);
  const std::string home = variable("HOME");
  if (home.empty()) throw Error("there is no place for models: set HF_HOME to a directory");
  return fs::absolute(home) / (text.size() > 2 ? text.substr(2) : "");
}

fs::path hf_home() {
  if (const std::string home = variable("HF_HOME"); !home.empty()) return path_of(home);
  const std::string caches = variable("XDG_CACHE_HOME");
  return path_of(caches.empty() ? "~/.cache" : caches) / "huggingface";
}

/// Without the white space around it, as editors leave it at a file's end.
std::string trimmed(const std::string& text) {
  constexpr const char* kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == text.npos) return "";
  return text.substr(first, text.find_last_not_of(kBlank) + 1 - first);
}

/// A header of HTTP must not end within a token.
std::string checked_token(const std::string& text, const std::string& from) {
  std::string token = trimmed(text);
  if (std::any_of(token.begin(), token.end(), [](char c) { return c <= ' ' || c > '~'; }))
    throw Error(from + ": a token is one word of letters and digits");
  return token;
}

std::string find_token(const fs::path& home) {
  constexpr std::uint64_t kMostTokenBytes = 4096;
  if (const std::string token = checked_token(variable("HF_TOKEN"), "HF_TOKEN"); !token.empty())
    return token;
  const std::string named = variable("HF_TOKEN_PATH");
  const fs::path file = named.empty() ? home / "token" : path_of(named);
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return "";
  return checked_token(read_file(file, kMostTokenBytes, FileKind::kOfUser), file.string());
}

bool is_true(std::string value) {
  for (char& c : value)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

}  // namespace

Settings settings_from_environment() {
  Settings settings;
  const fs::path home = hf_home();
  const std::string cache = variable("HF_HUB_CACHE");
  settings.cache = cache.empty() ? home / "hub" : path_of(cache);
  settings.token = find_token(home);
  settings.offline = is_true(variable("HF_HUB_OFFLINE"));
  if (std::string endpoint = variable("HF_ENDPOINT"); !endpoint.empty()) {
    while (endpoint.ends_with('/')) endpoint.pop_back();
    if (!endpoint.starts_with("https://") && !endpoint.starts_with("http://"))
      throw Error("HF_ENDPOINT: " + in_quotes(endpoint) +
                  " does not begin with https:// or http://");
    settings.endpoint = std::move(endpoint);
  }
  if (const std::string text = variable("HF_HUB_DOWNLOAD_TIMEOUT"); !text.empty()) {
    int seconds = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, seconds);
    if (error != std::errc() || rest != end || seconds < 1)
      throw Error("HF_HUB_DOWNLOAD_TIMEOUT: " + in_quotes(text) + " is not a number of seconds");
    settings.most_silence = std::chrono::seconds(seconds);
  }
  return settings;
}

}  // namespace canopy::hub
