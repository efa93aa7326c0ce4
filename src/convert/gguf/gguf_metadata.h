#pragma once
#include <filesystem>
#include <string>

#include "src/checkpoint/checkpoint.h"
#include "src/convert/gguf/gguf_writer.h"

namespace canopy {

/// general.*, the architecture's sizes and rotary keys. `file_type` is GGUF's general.file_type.
/// Throws: Error if GGUF cannot express the rotary scaling.
GgufMetadata gguf_model_metadata(const Checkpoint& model, std::uint32_t file_type);

/// tokenizer.*: copied from a GGUF source; made from a directory's tokenizer.json if that is a
/// byte-level BPE with a pre-tokenizer that GGUF knows by name, else from its tekken.json. Empty if
/// the source has none. Throws: Error naming the part that is not supported.
GgufMetadata gguf_tokenizer_metadata(const Checkpoint& model);

}  // namespace canopy
