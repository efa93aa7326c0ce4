// canopy shard: the rows of a model that one of several machines reads.
#include "src/convert/shard.h"

#include <functional>
#include <iostream>
#include <optional>

#include "src/base/size_text.h"
#include "src/cli/commands/commands.h"
#include "src/cli/options/model/hub_model.h"
#include "src/cli/options/model/model_options.h"
#include "src/cli/options/rank_options.h"
#include "src/cli/output/write_progress.h"

namespace canopy::cli {

namespace {

constexpr const char* kUsage =
    "usage: canopy shard -m MODEL --ranks N --rank I [--shares A:B:...] -o DIR\n\n"
    "Writes what rank I of N that mpirun starts reads of a model: its rows of every matrix, and\n"
    "all that is not cut. The files are as long as the model's, with holes in place of the rest,\n"
    "so they take that much less of a disk; cp --sparse=always, tar -S and rsync -S keep holes.\n"
    "Ranks of generate, chat, serve and bench decode take the directory as their model, each its\n"
    "own; of a GGUF file, the file in it.";

}  // namespace

int run_shard(const std::vector<std::string>& words) {
  std::string path, output;
  std::optional<int> ranks, rank;
  bool show_progress = false;
  RankOptions shares;
  Flags flags;
  add_model_flag(flags, path);
  flags.add_options()                                                                           //
      ("ranks", into(ranks, "N", at_least("--ranks", 1))->required(), "number of the ranks")    //
      ("rank", into(rank, "I", at_least("--rank", 0))->required(), "rank to write, from 0 on")  //
      ("shares", shares.shares_flag(), "rows of each, in proportion: to the speeds of their disks")(
          "output,o", required(output, "DIR"), "directory to write")  //
      ("progress", given(show_progress), kProgressHelp);
  if (!parse(words, kUsage, flags)) return 0;
  if (*rank >= *ranks) throw UsageError("--rank: must be below --ranks, " + std::to_string(*ranks));
  const Share share = shares.share_of(*rank, *ranks);
  const Checkpoint model = Checkpoint::open(local_model(path));
  WriteProgress progress(show_progress);
  const ShardReport report = write_shard(model, share, output, std::ref(progress));
  progress.clear();
  std::cout << output << ": rank " << *rank << " of " << *ranks << ", " << format_size(report.bytes)
            << " of " << format_size(report.source_bytes) << "\n";
  return 0;
}

}  // namespace canopy::cli
