// canopy calibrate hardware: what a step costs on this machine.
#include <iostream>
#include <set>

#include "src/base/error.h"
#include "src/cli/commands/commands.h"
#include "src/cli/interrupt.h"
#include "src/cli/options/model/hub_model.h"
#include "src/cli/options/model/model_options.h"
#include "src/cli/options/model/profile.h"
#include "src/cli/output/aside.h"
#include "src/cli/output/table.h"

namespace canopy::cli {

namespace {

constexpr const char* kUsage =
    "usage: canopy calibrate hardware -m MODEL [-md DRAFT] [FLAG ...]\n\n"
    "Times what a step is made of, on real sweeps over the first layers of the model: the link, "
    "arithmetic\n"
    "by the tokens of a sweep, levels of the draft, verification. Plans are made from these "
    "figures;\n"
    "generate measures them by itself when they are missing. Takes ten seconds; more, where large\n"
    "layers need it.";

void print(const HardwareProfile& p) {
  std::cout << p.machine << ", " << p.date << "\n"
            << "link " << fixed(p.link_bytes_per_second / 1e9, 2) << " GB/s, "
            << fixed(100 * p.link_slowing, 0) << " % less next to arithmetic, ";
  if (p.upload_bytes_per_second > 0)
    std::cout << "to the GPU " << fixed(p.upload_bytes_per_second / 1e9, 2) << " GB/s, ";
  std::cout << "verification " << fixed(1e3 * p.verify.count(), 2) << " ms per accepted token\n"
            << "milliseconds, by tokens:\n";
  std::vector<Column> columns{{.head = "tokens", .width = 7, .before = "  "},
                              {.head = "head", .width = 10}};
  std::vector<const Curve*> curves{&p.head};
  const auto add = [&](const std::string& unit, std::size_t kind, const Curve& curve) {
    if (curve.knots().empty()) return;
    const std::string name = kind == 0 ? unit : unit + " " + std::to_string(kind + 1);
    columns.push_back({.head = name, .width = name.size() + 3});
    curves.push_back(&curve);
  };
  for (std::size_t kind = 0; kind < p.layers.size(); ++kind) {
    add("attention", kind, p.layers[kind].attention);
    add("MLP", kind, p.layers[kind].mlp);
  }
  std::set<double> tokens;
  for (const Sample& s : p.head.knots()) tokens.insert(s.x);
  if (p.drafting) {
    columns.push_back({.head = "draft, greedy", .width = 14});
    columns.push_back({.head = "draft, sampled", .width = 14});
    curves.insert(curves.end(), {&p.drafting->level_greedy, &p.drafting->level_sampled});
    for (const Sample& s : p.drafting->level_greedy.knots()) tokens.insert(s.x);
  }
  const Table table(std::move(columns));
  std::cout << table.head();
  for (const double x : tokens) {
    std::vector<std::string> cells{fixed(x, 0)};
    for (const Curve* curve : curves)
      cells.push_back(x <= curve->knots().back().x ? fixed(curve->at(x).count() * 1e3, 2) : "-");
    std::cout << table.row(cells);
  }
  if (p.at_rest.knots().empty()) return;
  std::cout << "all layers and the head, where nothing is read:";
  for (const Sample& s : p.at_rest.knots())
    std::cout << (&s == &p.at_rest.knots().front() ? " " : ", ") << fixed(s.t.count() * 1e3, 2)
              << " (" << fixed(s.x, 0) << ")";
  std::cout << "\n";
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
  add_draft_repository_flag(own);
  if (!parse(words, kUsage, flags.add(own).add(model.flags()))) return 0;
  const EngineOptions options = model.engine_options();
  print_notes(options.device);

  const Interrupt interrupt;
  const ModelFiles models =
      open_models(local_model(model.model, interrupt.token()),
                  local_model(draft.value_or(""), interrupt.token()), {}, model.holes());
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
  if (kept != "-") aside() << "kept in " << kept.string() << "\n";
  return 0;
}

}  // namespace canopy::cli
