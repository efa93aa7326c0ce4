#pragma once
// Room src/hub: models of the Hugging Face Hub, in the cache that its own library keeps.
// In: a repository's name, and the user's settings of the Hub. Out: a folder or a file of the cache
// that holds the whole model, downloaded where it was not there.
// Must not know: models' contents, beyond names of files and an index of shards; the command line.
#include <string>
#include <string_view>

namespace canopy::hub {

/// A model on the Hub: "ORG/NAME", "ORG/NAME@REVISION", "ORG/NAME:QUANT".
struct Repository {
  std::string id;                 // "ORG/NAME", or the one name of an old repository
  std::string revision = "main";  // a branch, a tag or a commit
  std::string quant;              // "Q4_K_M", part of the names of GGUF files; "": none was named

  std::string in_words() const;  // as parse_repository() takes it
};

/// Throws Error naming what is wrong. Source: huggingface_hub's validate_repo_id(), but for the
/// length of a single name.
Repository parse_repository(std::string_view text);

/// True for the 40 hexadecimal digits of a commit.
bool is_commit(std::string_view revision);
/// True for a relative path that leads nowhere else than below where it begins.
bool stays_inside(std::string_view path);
/// Returns a text as a part of a URL, with its slashes as they are or as %2F.
enum class Slashes : bool { kKept, kEncoded };
std::string url_part(std::string_view text, Slashes slashes);

}  // namespace canopy::hub
