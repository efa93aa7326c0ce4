#include "src/convert/pack/pack.h"

#include <functional>
#include <iomanip>
#include <iostream>
#include <optional>
#include <string>

#include "src/base/formats/packed_format.h"
#include "src/base/size_text.h"
#include "src/base/utf8.h"
#include "src/cli/commands/commands.h"
#include "src/cli/options/model/hub_model.h"
#include "src/cli/options/model/model_options.h"
#include "src/cli/output/aside.h"
#include "src/cli/output/write_progress.h"
#include "src/machine/cpus.h"

namespace canopy::cli {

namespace {

/// Arguments of pack and unpack.
struct Conversion {
  Checkpoint model;
  std::string output;
  int threads;
};
/// Adds flags that one of the two has.
using AddFlags = std::function<void(Flags&)>;

/// Parses the words and calls run(conversion, progress). Returns the exit code.
template <class Run>
int convert(const std::vector<std::string>& words, std::string_view usage, Rows rows,
            const AddFlags& add_flags, const Run& run) {
  std::string path, output;
  int wanted_threads = 0;
  bool show_progress = false, allow_holes = false;
  Flags flags;
  add_model_flag(flags, path);
  flags.add_options()                                              //
      ("allow-holes", given(allow_holes), kHolesHelp)              //
      ("output,o", required(output, "DIR"), "directory to write")  //
      ("threads,t", into(wanted_threads, "N", at_least("--threads", 0)),
       "threads that compute (0: one per CPU)")  //
      ("progress", given(show_progress), "report on stderr even if it is not a terminal");
  add_flags(flags);
  if (!parse(words, usage, flags)) return 0;
  const int threads = usable_threads(wanted_threads);
  const Conversion conversion{Checkpoint::open(local_model(path), holes_by(allow_holes), rows),
                              output,
                              threads > 0 ? threads : static_cast<int>(allowed_cpus().size())};
  print_notes(conversion.model);
  WriteProgress progress(show_progress);
  run(conversion, progress);
  return 0;
}

/// Reads --codec.
std::string parse_codec(const std::string& flag, const std::string& text) {
  if (find_codec(text) != nullptr) return text;
  std::string known;
  for (const PackedFormat& format : kPackedFormats)
    if (find_codec(format.codec) == &format)
      known += (known.empty() ? "" : ", ") + std::string(format.codec);
  throw UsageError(flag + ": no codec is called " + in_quotes(text) + "; there are " + known);
}

}  // namespace

int run_pack(const std::vector<std::string>& words) {
  std::optional<std::string> codec;
  return convert(
      words,
      "usage: canopy pack -m MODEL -o DIR\n\n"
      "Writes a model in BF16 in about seven tenths of its bytes, or one in FP8 in nearly nine,\n"
      "which hold the same weights bit for bit: a sweep has less to read, and more of the model\n"
      "stays in memory. Every command takes the directory as a model. unpack gives the model "
      "back,\n"
      "with the scales of FP8 as they were.\n\n"
      "A directory in 4 or 8 bits by AWQ, GPTQ, NVFP4, bitsandbytes (nf4, fp4) or\n"
      "compressed-tensors (pack-quantized, int-quantized), and that of GPT-OSS, becomes one whose\n"
      "matrices lie by rows, with the same values. No other command takes it as it is.\n\n"
      "A run that is cut (Ctrl-C, a kill, a power cut) leaves DIR.canopy-partial. The same "
      "command\n"
      "goes on with it, after what was written; to give it up, remove it.",
      Rows::kToBeMade,
      [&](Flags& flags) {
        flags.add_options()(
            "codec",
            into(codec, by_default("NAME", format::PackedBF16::kCodec), "--codec", parse_codec),
            "of BF16: bf16-window-512, or bf16-levels-512, 4 % fewer bytes for three times the "
            "work of unpacking; of FP8: e4m3-levels-512; canopy plan -m MODEL says which pays "
            "here. What it is not for is packed as without it");
      },
      [&](const Conversion& c, WriteProgress& progress) {
        const PackReport report = pack(
            c.model, c.output, c.threads, std::ref(progress),
            [&](const std::string& text) {
              progress.clear();
              aside() << "note: " << text << "\n";
            },
            codec.value_or(""));
        progress.clear();
        std::cout << c.output << ": " << format_size(report.bytes) << " instead of "
                  << format_size(report.source_bytes) << ", " << std::fixed << std::setprecision(3)
                  << static_cast<double>(report.bytes) / static_cast<double>(report.source_bytes)
                  << " of its weights' bytes; ";
        if (report.by_rows > 0) std::cout << report.by_rows << " matrices now by rows, ";
        for (const auto& [by, matrices] : report.packed_by)
          std::cout << matrices << " matrices packed by " << by << ", ";
        std::cout << report.plain << " as they were\n";
        if (report.packed == 0 && report.by_rows == 0)
          std::cerr << "canopy pack: no matrix became smaller: packing is for trained weights in "
                       "BF16 or FP8, in rows of hundreds of columns\n";
      });
}

int run_unpack(const std::vector<std::string>& words) {
  return convert(
      words,
      "usage: canopy unpack -m DIR -o DIR\n\n"
      "Writes a packed model as it was before, and says whether each tensor has the "
      "checksum that\nwas kept when it was packed. What was in 4 or 8 bits becomes F32.",
      Rows::kThere, [](Flags&) {},
      [](const Conversion& c, WriteProgress& progress) {
        const UnpackReport report = unpack(c.model, c.output, c.threads, std::ref(progress));
        progress.clear();
        std::cout << c.output << ": " << format_size(report.bytes) << " of weights; "
                  << report.checked << " of " << report.tensors
                  << " tensors have the checksum that was kept when they were packed\n";
      });
}

}  // namespace canopy::cli
