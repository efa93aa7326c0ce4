// canopy pull: a model of the Hugging Face Hub, in the cache that huggingface_hub keeps.
#include "src/hub/pull.h"

#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "src/base/json_text.h"
#include "src/base/size_text.h"
#include "src/cli/commands/commands.h"
#include "src/cli/interrupt.h"
#include "src/cli/options/flags.h"
#include "src/cli/options/model/model_options.h"
#include "src/cli/output/aside.h"
#include "src/cli/output/pull_progress.h"

namespace canopy::cli {

namespace {

constexpr const char* kUsage =
    "usage: canopy pull REPO[@REVISION][:QUANT] [--json] [--progress]\n\n"
    "Downloads a model of the Hugging Face Hub, or what of it has changed, and prints the path\n"
    "that -m takes. It lies in the cache that huggingface_hub keeps. QUANT names one of the\n"
    "repository's GGUF files: Q4_K_M, or another part of its name. Without one it is Q4_K_M,\n"
    "else Q4_0, else the first; where there is no GGUF file, the folder of safetensors. What was\n"
    "cut off goes on where it stopped. The environment counts as for huggingface_hub: HF_TOKEN,\n"
    "HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_HUB_OFFLINE, HF_HUB_DOWNLOAD_TIMEOUT.";

hub::Repository repository_named(const std::string& text) {
  try {
    return hub::parse_repository(text);
  } catch (const Error& e) {
    throw UsageError(e.what());
  }
}

nlohmann::ordered_json as_json(const hub::Repository& repository, const hub::Pulled& pulled) {
  return {{"repository", repository.id},
          {"revision", repository.revision},
          {"commit", pulled.commit},
          {"path", pulled.path.string()},
          {"files", pulled.files},
          {"bytes", pulled.bytes},
          {"downloaded_bytes", pulled.downloaded}};
}

}  // namespace

int run_pull(const std::vector<std::string>& words) {
  std::string name;
  bool as_object = false, show_progress = false;
  Flags flags;
  flags.add_options()  //
      ("hf-repo", required(name, "REPO"),
       "-hf: the repository, ORG/NAME; -hf may be left out")                               //
      ("json", given(as_object), "print one JSON object: also the files and their bytes")  //
      ("progress", given(show_progress), kProgressHelp);
  if (!parse(words, kUsage, flags)) return 0;
  const hub::Repository repository = repository_named(name);
  const Interrupt interrupt;
  PullProgress progress(show_progress);
  const hub::Pulled pulled = hub::pull(repository, hub::settings_from_environment(),
                                       hub::Asking::kAlways, std::ref(progress), interrupt.token());
  progress.clear();
  aside() << pulled.files.size() << (pulled.files.size() == 1 ? " file of " : " files of ")
          << format_size(pulled.bytes) << ", " << format_size(pulled.downloaded) << " downloaded\n";
  if (as_object)
    std::cout << json_text(as_json(repository, pulled), 2) << "\n";
  else
    std::cout << pulled.path.string() << "\n";
  return 0;
}

}  // namespace canopy::cli
