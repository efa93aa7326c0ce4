#include "src/convert/enlarge/inflate.h"

#include <functional>
#include <iostream>

#include "src/base/size_text.h"
#include "src/cli/commands/commands.h"
#include "src/cli/options/model/hub_model.h"
#include "src/cli/options/model/model_options.h"
#include "src/cli/options/values.h"
#include "src/cli/output/write_progress.h"
#include "src/convert/enlarge/enlargement.h"

namespace canopy::cli {

namespace {

constexpr const char* kUsage =
    "usage: canopy inflate -m SMALL -o DIR (--size SIZE | --experts E --active K) [--seed S]\n\n"
    "Writes an enlargement of a small model that computes the same function, so that the small\n"
    "model's text meets the weight traffic of a big one, and beside it, as DIR-small, the small\n"
    "model rounded to BF16: the two give equal logits. With --experts the big one is a Mixtral,\n"
    "each of whose experts computes what the small model's MLP does: equal but for rounding.";

}  // namespace

int run_inflate(const std::vector<std::string>& words) {
  std::string path, output, size;
  InflateRequest request;
  bool show_progress = false, allow_holes = false;
  Flags flags;
  add_model_flag(flags, path);
  flags.add_options()                                  //
      ("allow-holes", given(allow_holes), kHolesHelp)  //
      ("output,o", required(output, "DIR"),
       "directory to write; the small model in BF16 goes to DIR-small")  //
      ("size", into(size, "SIZE"),
       "bytes of weights to reach, e.g. 8G (met within about 2 %)")  //
      ("experts", into(request.experts, "E"),
       "experts of each layer, in place of a size; a router of random weights chooses")  //
      ("active", into(request.active, "K"), "of them, that compute for a token")         //
      ("seed", into(request.seed, "S"), "of the weights that nothing depends on")        //
      ("progress", given(show_progress), "report on stderr even if it is not a terminal");
  if (!parse(words, kUsage, flags)) return 0;

  request.output = output;
  if (!request.output.has_filename()) request.output = request.output.parent_path();
  if (request.output.empty()) throw UsageError("--output: '/' cannot be written");
  request.small = request.output;
  request.small += "-small";
  if (size.empty() == (request.experts == 0))
    throw UsageError("give either --size, or --experts and --active");
  if ((request.experts > 0) != (request.active > 0))
    throw UsageError("--experts and --active go together");
  if (request.experts < 0 || request.active < 0 || request.active > request.experts)
    throw UsageError("--active: 1 to the " + std::to_string(request.experts) + " of --experts");
  if (!size.empty()) request.bytes = parse_budget("--size", size);
  const Checkpoint model = Checkpoint::open(local_model(path), holes_by(allow_holes));
  print_notes(model);

  WriteProgress progress(show_progress);
  const ModelConfig big = inflate(model, request, std::ref(progress));
  progress.clear();
  const auto line = [](const std::filesystem::path& folder, const ModelConfig& c) {
    std::cout << folder.string() << ": " << format_size(bf16_bytes(c)) << " of BF16 weights, "
              << c.layers << " layers, dim " << c.dim << ", " << c.heads << " heads, " << c.kv_heads
              << " KV heads, MLP " << c.hidden_dim;
    if (c.experts.count > 0)
      std::cout << ", " << c.experts.active << " of " << c.experts.count << " experts";
    std::cout << "\n";
  };
  line(request.small, model.config());
  line(request.output, big);
  std::cout << "Both compute the same function: " << request.output.filename().string()
            << " is an inflated model, not a better one.\n";
  return 0;
}

}  // namespace canopy::cli
