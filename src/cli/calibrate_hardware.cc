// canopy calibrate hardware: what a step costs on this machine.
#include <cstdio>
#include <iostream>
#include <map>

#include "src/base/error.h"
#include "src/cli/commands.h"
#include "src/cli/interrupt.h"
#include "src/cli/options/model_options.h"
#include "src/cli/options/profile.h"

namespace canopy::cli {

namespace {

constexpr const char* kUsage =
    "usage: canopy calibrate hardware -m MODEL [-md DRAFT] [FLAG ...]\n\n"
    "Times what a step is made of, on real sweeps over the first layers of the model: the link, "
    "arithmetic\n"
    "by the tokens of a sweep, levels of the draft, verification. Plans are made from these "
    "figures;\n"
    "generate measures them by itself when they are missing.";

void print(const HardwareProfile& p) {
  std::printf("%s, %s\n", p.machine.c_str(), p.date.c_str());
  std::printf("link %.2f GB/s, ", p.link_bytes_per_second / 1e9);
  if (p.upload_bytes_per_second > 0)
    std::printf("to the GPU %.2f GB/s, ", p.upload_bytes_per_second / 1e9);
  std::printf("verification %.2f ms per accepted token\n", 1e3 * p.verify.count());
  std::printf("milliseconds, by tokens:\n  %7s %10s %10s %10s", "tokens", "attention", "MLP",
              "head");
  if (p.drafting) std::printf(" %14s %14s", "draft, greedy", "draft, sampled");
  std::printf("\n");
  std::map<double, int> rows;
  for (const Sample& s : p.attention.knots()) rows[s.x];
  if (p.drafting)
    for (const Sample& s : p.drafting->level_greedy.knots()) rows[s.x];
  const auto ms = [](const Curve& curve, double x) {
    return x <= curve.knots().back().x ? curve.at(x).count() * 1e3 : -1;
  };
  const auto column = [](int width, double value) {
    if (value < 0)
      std::printf(" %*s", width, "-");
    else
      std::printf(" %*.2f", width, value);
  };
  for (const auto& [x, unused] : rows) {
    std::printf("  %7.0f", x);
    column(10, ms(p.attention, x));
    column(10, ms(p.mlp, x));
    column(10, ms(p.head, x));
    if (p.drafting) {
      column(14, ms(p.drafting->level_greedy, x));
      column(14, ms(p.drafting->level_sampled, x));
    }
    std::printf("\n");
  }
}

}  // namespace

int run_calibrate_hardware(const std::vector<std::string>& words) {
  ModelOptions model;
  std::optional<std::string> draft, file;
  bool as_json = false;
  Flags flags, own("Measurement");
  own.add_options()  //
      ("model-draft", into(draft, "PATH"),
       "-md: the draft model; without one, plain decoding alone can be planned")                  //
      ("output,o", into(file, "FILE"), "where to write the profile (default: the user's cache)")  //
      ("json", given(as_json), "print the profile itself");
  if (!parse(words, kUsage, flags.add(own).add(model.flags()))) return 0;
  const EngineOptions options = model.engine_options();

  const Interrupt interrupt;
  const ModelFiles models = open_models(model.model, draft.value_or(""));
  ProgressLine progress(model.progress);
  HardwareProfile profile;
  const std::filesystem::path kept =
      file ? std::filesystem::path(*file) : profile_file(models, options);
  TextOutput output = file ? TextOutput(*file) : open_in_cache(kept);
  try {
    profile = measure_profile(models, options, progress, interrupt.token());
  } catch (const Stopped&) {
    progress.clear();
    std::cerr << "canopy calibrate hardware: stopped, nothing was written\n";
    return Interrupt::exit_code();
  }
  output.write(to_json(profile));
  if (as_json)
    std::cout << to_json(profile);
  else
    print(profile);
  if (kept != "-") std::cerr << "kept in " << kept.string() << "\n";
  return 0;
}

}  // namespace canopy::cli
