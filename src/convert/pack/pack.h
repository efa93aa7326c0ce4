#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "src/checkpoint/checkpoint.h"
#include "src/convert/output.h"

namespace canopy {

struct PackReport {
  std::uint64_t source_bytes = 0, bytes = 0;  // of weights before; of the weights' file after
  int packed = 0, plain = 0;                  // matrices that were packed, and that were not
  std::map<std::string, int> packed_by;       // those that were, by codec
  int by_rows = 0;                            // of codes in another order, which became rows
  std::uint64_t taken_bytes = 0;              // of the file that a run which was cut had written
};
/// Called with a line for the user: what was taken over, thrown away, or is left.
using PackNote = std::function<void(const std::string&)>;
/// Writes a model as a directory whose matrices of BF16 and FP8 are packed, those that `codec` is
/// for by it, others by the first of kPackedFormats for them, in the order of a sweep, each unit at
/// a multiple of 4096 bytes (docs/formats.md, "Packed models"). Scales of FP8 are copied. A matrix
/// that its codec makes no smaller, and one of F16 or F32, stays as it is; one with
/// TensorEntry::parts becomes rows with the same values. Streams; the same model gives the same
/// bytes. The directory does not appear before it is complete. A run that ends early leaves the
/// units that it finished, and the next of the same model goes on after them (PackJournal). Throws
/// Error, also where `codec` is for no matrix of the model; Stopped by way of `progress`.
PackReport pack(
    const Checkpoint& model, const std::filesystem::path& output, int threads,
    const Progress& progress, const PackNote& note = [](const std::string&) {},
    std::string_view codec = {});

struct UnpackReport {
  std::uint64_t bytes = 0;  // of weights
  int tensors = 0, checked = 0;
};
/// Writes a packed model as it was: each tensor bit for bit, which its checksum shows. What was
/// whole numbers becomes F32, with the same values. Throws Error
/// naming the tensor where it does not; also for a model that is not packed.
UnpackReport unpack(const Checkpoint& model, const std::filesystem::path& output, int threads,
                    const Progress& progress);

}  // namespace canopy
