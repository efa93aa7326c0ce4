#include "src/cli/options/model/hub_model.h"

#include <map>

#include "src/cli/interrupt.h"
#include "src/cli/output/aside.h"
#include "src/cli/output/pull_progress.h"
#include "src/hub/pull.h"

namespace canopy::cli {

namespace {

constexpr const char* kModelHelp =
    "model: a Hugging Face directory or a GGUF file; -m may be left out";

void add_repository(Flags& flags, const char* name, const char* help) {
  flags.add_options()(name, boost::program_options::value<std::string>()->value_name("REPO"), help);
}

void add_model_repository(Flags& flags) {
  add_repository(flags, "hf-repo",
                 "-hf: in place of -m, a repository of the Hugging Face Hub: ORG/NAME, with :QUANT "
                 "for one of its GGUF files or @REVISION; from the Hugging Face cache, else "
                 "downloaded (canopy pull)");
}

}  // namespace

void add_model_flag(Flags& flags, std::string& model) {
  flags.add_options()("model,m", required(model, "PATH"), kModelHelp);
  add_model_repository(flags);
}

void add_model_flag(Flags& flags, std::optional<std::string>& model) {
  flags.add_options()("model,m", into(model, "PATH"), kModelHelp);
  add_model_repository(flags);
}

void add_draft_repository_flag(Flags& flags) {
  add_repository(flags, "hf-repo-draft", "-hfd: in place of -md, a repository, as -hf takes it");
}

std::string local_model(const std::string& named, const std::stop_token& stop) {
  static std::map<std::string, std::string> known;  // a bench opens its models several times
  if (!named.starts_with(kHubPrefix)) return named;
  if (const auto found = known.find(named); found != known.end()) return found->second;
  const hub::Repository repository = hub::parse_repository(named.substr(kHubPrefix.size()));
  PullProgress progress(false);
  const hub::Pulled pulled = hub::pull(repository, hub::settings_from_environment(),
                                       hub::Asking::kIfMissing, std::ref(progress), stop);
  progress.clear();
  if (!pulled.note.empty()) aside() << "note: " << pulled.note << "\n";
  aside() << "note: " << repository.in_words() << " is " << pulled.path.string() << "\n";
  return known[named] = pulled.path.string();
}

std::string local_model(const std::string& named) {
  if (!named.starts_with(kHubPrefix)) return named;
  const Interrupt interrupt;
  return local_model(named, interrupt.token());
}

}  // namespace canopy::cli
