#include "src/convert/inflate.h"

#include <functional>
#include <iostream>

#include "src/cli/command.h"
#include "src/cli/commands.h"
#include "src/cli/options/model_options.h"
#include "src/cli/output/write_progress.h"
#include "src/convert/enlargement.h"

namespace canopy::cli {

int run_inflate(const std::vector<std::string>& words) {
  namespace po = boost::program_options;
  po::options_description options("flags");
  options.add_options()("model,m", po::value<std::string>()->required(), kModelHelp);
  options.add_options()("output,o", po::value<std::string>()->required(),
                        "directory to write; the small model in BF16 goes to DIR-small");
  options.add_options()("size", po::value<std::string>()->required(),
                        "bytes of weights to reach, e.g. 8G (met within about 2 %)");
  options.add_options()("seed", po::value<std::uint64_t>()->default_value(0),
                        "of the weights that nothing depends on");
  options.add_options()("progress", "report on stderr even if it is not a terminal");
  const auto values = parse(
      words,
      "usage: canopy inflate -m SMALL -o DIR --size SIZE [--seed S]\n\n"
      "Writes an enlargement of a small model that computes the same function, so that the small\n"
      "model's text meets the weight traffic of a big one, and beside it, as DIR-small, the small\n"
      "model rounded to BF16: the two give equal logits.",
      options);
  if (!values) return 0;

  InflateRequest request;
  request.output = (*values)["output"].as<std::string>();
  if (!request.output.has_filename()) request.output = request.output.parent_path();
  if (request.output.empty()) throw UsageError("--output: '/' cannot be written");
  request.small = request.output;
  request.small += "-small";
  request.bytes = parse_size("--size", (*values)["size"].as<std::string>());
  request.seed = (*values)["seed"].as<std::uint64_t>();
  const Checkpoint model = Checkpoint::open((*values)["model"].as<std::string>());

  WriteProgress progress(*values);
  const ModelConfig big = inflate(model, request, std::ref(progress));
  progress.clear();
  const auto line = [](const std::filesystem::path& path, const ModelConfig& c) {
    std::cout << path.string() << ": " << format_size(bf16_bytes(c)) << " of BF16 weights, "
              << c.layers << " layers, dim " << c.dim << ", " << c.heads << " heads, " << c.kv_heads
              << " KV heads, MLP " << c.hidden_dim << "\n";
  };
  line(request.small, model.config());
  line(request.output, big);
  std::cout << "Both compute the same function: " << request.output.filename().string()
            << " is an inflated model, not a better one.\n";
  return 0;
}

}  // namespace canopy::cli
