// Started by mpirun in tests/cluster/mpi_test.py, or alone: writes texts of a tiny model, a line of
// tokens each, with a chain of guesses and weights that are read from disk in each sweep.
//   mpi_texts MODEL TEXTS MEMORY TIMEOUT    MEMORY: MiB, 0 for what is safe; TIMEOUT: seconds
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "src/cluster/mpi_transport.h"
#include "src/engine/ranks/follow.h"
#include "tests/engine/tiny_engine.h"

namespace canopy {
namespace {

constexpr int kPrompt = 20, kNew = 60;
constexpr std::int64_t kBlock = 16;  // rows: each rank of three has some of a tiny model

ModelFiles open(const char* path) {
  ModelFiles files{Checkpoint::open(path), std::nullopt, nullptr};
  files.tokenizer = std::make_unique<NumberTokenizer>(files.target.config().vocab,
                                                      files.target.config().end_tokens);
  return files;
}

EngineOptions options_of(int mebibytes) {
  EngineOptions options;
  options.device.threads = 1;
  options.plan.method = SpeculationMethod::kChain;
  options.plan.draft = draft_source_named("ngram:2");
  options.plan.tree_size = 5;
  options.plan.resident = 0;
  options.plan.max_prompt = kPrompt;
  options.plan.context = kPrompt + kNew;
  options.plan.memory = static_cast<std::uint64_t>(mebibytes) << 20;
  return options;
}

void write_texts(ModelFiles models, const EngineOptions& options, int texts) {
  const int vocab = models.target.config().vocab;
  Engine engine(std::move(models), options);
  for (int text = 0; text < texts; ++text) {
    Request request;
    request.max_new_tokens = kNew;
    request.ignore_end = true;
    std::mt19937 random(static_cast<unsigned>(text));
    for (int i = 0; i < kPrompt; ++i)
      request.prompt.push_back(static_cast<TokenId>(random() % static_cast<unsigned>(vocab)));
    for (const TokenId token : engine.generate(request).tokens) std::cout << token << ' ';
    std::cout << std::endl;
  }
}

int run(const char* model, int texts, int mebibytes, double timeout) {
  EngineOptions options = options_of(mebibytes);
  if (launched_by_mpi().ranks == 1) {
    write_texts(open(model), options, texts);
    return 0;
  }
  auto transport = join_by_mpi();
  const Share share{transport->rank(),
                    std::vector<std::int64_t>(static_cast<std::size_t>(transport->ranks()), 1),
                    kBlock};
  Cluster cluster(std::move(transport), share, {Seconds(timeout), Seconds(timeout / 6)});
  options.cluster = &cluster;
  std::string failed;
  try {
    if (share.rank == 0) {
      write_texts(open(model), options, texts);
      end_followers(cluster);
    } else {
      follow([&] { return Checkpoint::open(model); }, options);
    }
  } catch (const std::exception& error) {
    failed = error.what();
    std::cerr << cluster.name(share.rank) + ": " + failed + "\n" << std::flush;
  }
  if (!cluster.leave(failed).empty()) cluster.abort();
  return failed.empty() ? 0 : 1;
}

}  // namespace
}  // namespace canopy

int main(int count, char** arguments) {
  try {
    if (count == 5)
      return canopy::run(arguments[1], std::atoi(arguments[2]), std::atoi(arguments[3]),
                         std::atof(arguments[4]));
    std::cerr << "usage: mpi_texts MODEL TEXTS MEMORY TIMEOUT\n";
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
  }
  return 1;
}
