#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "src/hub/repository.h"
#include "src/hub/settings.h"

namespace canopy::hub {

/// A model of the Hub, and its place now.
struct Pulled {
  std::filesystem::path path;  // the GGUF file, the first of its parts, or the folder
  std::string commit;
  std::vector<std::string> files;
  std::uint64_t bytes = 0;       // of these files
  std::uint64_t downloaded = 0;  // of these, in this call
  std::string note;              // for the user, where the Hub could not be asked; else ""
};

/// Bytes that are there, of all that the model takes. May throw, which ends the download.
using OnProgress = std::function<void(std::uint64_t there, std::uint64_t all)>;

enum class Asking : bool {
  kAlways,     // the revision may have moved on
  kIfMissing,  // a model that is whole in the cache is taken as it is
};

/// Finds the model in the Hugging Face cache, and downloads what it lacks. A file appears in its
/// snapshot only when it is whole, with its size and, where the Hub gives one, its SHA-256; the
/// revision is set to the commit when all files are there. However it ends, what has come is kept,
/// and the next call goes on from it. Offline, or where nobody can be reached and kIfMissing is
/// asked for, the model is what the cache has of it. Throws Error saying what to do; Stopped.
Pulled pull(const Repository& repository, const Settings& settings, Asking asking,
            const OnProgress& on_progress, const std::stop_token& stop);

}  // namespace canopy::hub
