#include "offload/reading.h"

#include <utility>

#include "src/checkpoint/checkpoint.h"

namespace canopy {

LinkSample choose_read_settings(const std::vector<std::filesystem::path>& files,
                                std::span<std::byte> memory, const StreamerOptions& options,
                                const std::stop_token& stop) {
  if (!options.trial || options.limit) return {options.read_bytes, options.queue_depth};
  Notes same;  // the engine that reads weights says it again
  return LinkProbe(largest_file(files), memory, options.direct, options.io_uring)
      .best(options.trial->rounds, options.trial->round, same, stop, options.most_in_flight);
}

std::unique_ptr<ReadEngine> open_engine(std::span<const std::filesystem::path> files,
                                        std::span<const std::span<std::byte>> slabs,
                                        const LinkSample& settings, const StreamerOptions& options,
                                        Notes& notes) {
  auto made = make_read_engine(files, slabs,
                               {settings.queue_depth, options.direct, options.io_uring}, notes);
  if (options.limit) made = limit_reads(std::move(made), options.limit);
  return options.wrap_engine ? options.wrap_engine(std::move(made)) : std::move(made);
}

Error changed(const std::string& what, std::span<const std::filesystem::path> files,
              std::span<const Extent> extents) {
  std::string places;
  for (const Extent& extent : extents)
    places += (places.empty() ? "" : ", ") + files[static_cast<std::size_t>(extent.file)].string() +
              " bytes " + std::to_string(extent.offset) + " to " +
              std::to_string(extent.offset + extent.needed);
  return Error(what + " is not what it was when it was first read (" + places +
               "): the disk or the memory is failing, or the file was overwritten; see dmesg, and "
               "compare the file with its published checksum");
}

}  // namespace canopy
