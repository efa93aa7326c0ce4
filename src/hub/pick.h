#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "src/hub/listing.h"

namespace canopy::hub {

/// The files of a repository that make one model.
struct Pick {
  std::string model;               // the GGUF file to open, its first part; "": the folder
  std::vector<std::string> files;  // in the order in which they are fetched
  bool by_index = false;           // the first file is an index: with_shards() adds what it names
};

/// Picks the GGUF whose name has `quant` between its dashes, dots and slashes, in letters of any
/// case: one file, or all parts of one that was split. Without a quant it is kUsualQuants' first
/// that is there, else the first GGUF by name. Where there is no GGUF, a folder of safetensors with
/// its config, tokenizer and chat templates. Throws Error, listing what there is: nothing matches,
/// several do, or a part is missing.
Pick pick_files(const std::vector<RemoteFile>& files, std::string_view quant);
/// Adds the shards that the text of model.safetensors.index.json names. Throws Error: not an index,
/// or one that names what is not listed.
Pick with_shards(Pick pick, std::string_view index, const std::vector<RemoteFile>& files);

}  // namespace canopy::hub
