#include "src/cli/options/model/repack.h"

#include <algorithm>
#include <functional>

#include "src/base/error.h"
#include "src/checkpoint/fingerprint.h"
#include "src/cli/output/aside.h"
#include "src/cli/output/write_progress.h"
#include "src/convert/pack/pack.h"
#include "src/machine/cpus.h"

namespace canopy::cli {

namespace {

/// Throws Error unless `directory` has a model that was made of `source`.
void require_of(const Checkpoint& source, const std::string& directory, Holes holes) {
  in_context("taking --repack " + directory, [&] {
    const Checkpoint there = Checkpoint::open(directory, holes);
    if (source_fingerprint(there) != source_fingerprint(source))
      throw Error("it is not made of " + source.root().string() +
                  "; give another directory, or remove it");
  });
}

}  // namespace

std::filesystem::path by_rows(const std::string& model, const std::string& directory,
                              const ModelOptions& options, const std::stop_token& stop) {
  const Checkpoint source = Checkpoint::open(model, options.holes(), Rows::kToBeMade);
  if (std::ranges::none_of(source.tensors(), [](const auto& t) { return t.parts != nullptr; })) {
    aside() << "note: --repack: " << model << " lies by rows, and is taken as it is\n";
    return model;
  }
  std::error_code ignored;
  if (std::filesystem::exists(directory, ignored) &&
      !std::filesystem::is_empty(directory, ignored)) {
    require_of(source, directory, options.holes());
    return directory;
  }
  WriteProgress progress(options.progress, stop);
  const int threads = usable_threads(options.threads);
  pack(source, directory, threads > 0 ? threads : static_cast<int>(allowed_cpus().size()),
       std::ref(progress), [&](const std::string& text) {
         progress.clear();
         aside() << "note: --repack: " << text << "\n";
       });
  progress.clear();
  aside() << "note: " << directory << " has the weights of " << model
          << " by rows now; -m takes it without --repack, too\n";
  return directory;
}

}  // namespace canopy::cli
