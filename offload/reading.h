#pragma once
// Private to the sources that read weights in the middle of a run.
#include <filesystem>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "offload/io/link_probe.h"
#include "offload/io/read_engine.h"
#include "offload/io/read_layout.h"
#include "offload/streamer.h"
#include "src/base/error.h"

namespace canopy {

/// Returns how the link is best read, tried out into `memory` where the options ask for that.
LinkSample choose_read_settings(const std::vector<std::filesystem::path>& files,
                                std::span<std::byte> memory, const StreamerOptions& options,
                                const std::stop_token& stop);
std::unique_ptr<ReadEngine> open_engine(std::span<const std::filesystem::path> files,
                                        std::span<const std::span<std::byte>> slabs,
                                        const LinkSample& settings, const StreamerOptions& options,
                                        Notes& notes);
/// Why weights that differ from what was read of the same place before end a run.
Error changed(const std::string& what, std::span<const std::filesystem::path> files,
              std::span<const Extent> extents);

}  // namespace canopy
