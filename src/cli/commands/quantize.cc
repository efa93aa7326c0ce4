#include "src/convert/quantize/quantize.h"

#include <functional>
#include <iomanip>
#include <iostream>

#include "src/base/size_text.h"
#include "src/cli/commands/commands.h"
#include "src/cli/options/model/hub_model.h"
#include "src/cli/options/model/model_options.h"
#include "src/cli/options/values.h"
#include "src/cli/output/write_progress.h"
#include "src/machine/cpus.h"

namespace canopy::cli {

namespace {

constexpr const char* kUsage =
    "usage: canopy quantize -m MODEL -o FILE.gguf --type q4_0|q4_1|q8_0|q2_k|q4_k|q6_k|bf16\n\n"
    "Writes a model with its matrices in blocks of weights, embedding and head at 8 bits\n"
    "(6 with q2_k, q4_k and q6_k): a draft for its own original. q4_k is as small as q4_0\n"
    "and nearer to the original, q2_k little more than half of it and further from it. Rows\n"
    "that 256 does not divide become Q4_0 for q2_k, Q5_0 for q4_k and Q8_0 for q6_k. bf16 writes "
    "16 bits, for programs that read GGUF alone.";

DType parse_type(const std::string& given) {
  const std::string text = lower_case(given);
  if (text == "q4_0") return DType::kQ4_0;
  if (text == "q4_1") return DType::kQ4_1;
  if (text == "q8_0") return DType::kQ8_0;
  if (text == "q2_k") return DType::kQ2_K;
  if (text == "q4_k") return DType::kQ4_K;
  if (text == "q6_k") return DType::kQ6_K;
  if (text == "bf16") return DType::kBF16;
  throw UsageError("--type: '" + given + "' is not q4_0, q4_1, q8_0, q2_k, q4_k, q6_k or bf16");
}

}  // namespace

int run_quantize(const std::vector<std::string>& words) {
  std::string path, output, type;
  int wanted_threads = 0;
  bool show_progress = false, allow_holes = false;
  Flags flags;
  add_model_flag(flags, path);
  flags.add_options()                                                                 //
      ("allow-holes", given(allow_holes), kHolesHelp)                                 //
      ("output,o", required(output, "FILE"), "GGUF file to write")                    //
      ("type", required(type, "TYPE"), "q4_0, q4_1, q8_0, q2_k, q4_k, q6_k or bf16")  //
      ("threads,t", into(wanted_threads, "N", at_least("--threads", 0)),
       "threads that quantise (0: one per CPU)")  //
      ("progress", given(show_progress), "report on stderr even if it is not a terminal");
  if (!parse(words, kUsage, flags)) return 0;
  const DType dtype = parse_type(type);
  const int threads = usable_threads(wanted_threads);
  const Checkpoint model = Checkpoint::open(local_model(path), holes_by(allow_holes));
  print_notes(model);
  WriteProgress progress(show_progress);
  const QuantizeReport report =
      quantize(model, output, dtype, std::ref(progress),
               threads > 0 ? threads : static_cast<int>(allowed_cpus().size()));
  progress.clear();
  std::cout << output << ": " << format_size(report.weight_bytes) << " of weights";
  if (report.relative_error > 0)
    std::cout << ", relative error of the quantised matrices " << std::setprecision(3)
              << report.relative_error;
  std::cout << "\n";
  if (report.same_function)
    std::cerr << "canopy quantize: no weight changed (" << type
              << " holds them all, or rows are not whole blocks): the copy is the same function "
                 "and proves nothing as a draft\n";
  return 0;
}

}  // namespace canopy::cli
