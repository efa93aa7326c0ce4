#include "src/cli/options/foreign_flag.h"

#include <string>

#include "src/cli/output/aside.h"

namespace canopy::cli {

namespace po = boost::program_options;

void add_foreign(Flags& flags, const ForeignFlag& flag) {
  std::string name = flag.names;
  name = "--" + name.substr(0, name.find(','));
  const auto say = [name, why = flag.why] {
    aside() << "note: " << name << " changes nothing here: " << why << "\n";
  };
  const auto say_if = [say](bool given) {
    if (given) say();
  };
  const auto say_of = [say](const std::string&) { say(); };
  const std::string help = std::string("llama.cpp's, sets nothing: ") + flag.why;
  if (flag.value == nullptr)
    flags.add_options()(flag.names, po::bool_switch()->notifier(say_if), help.c_str());
  else
    flags.add_options()(flag.names,
                        po::value<std::string>()->value_name(flag.value)->notifier(say_of),
                        help.c_str());
}

void add_foreign_model_flags(Flags& flags) {
  constexpr const char* kRows = "the plan says how many tokens of a prompt share a sweep";
  for (const ForeignFlag& flag : {
           ForeignFlag{"flash-attn", "on|off|auto", "attention has one form"},
           ForeignFlag{"batch-size,b", "N", kRows},
           ForeignFlag{"ubatch-size", "N", kRows},
           ForeignFlag{"no-mmap", nullptr, "weights are read, and never mapped"},
           ForeignFlag{"mlock", nullptr,
                       "--resident says which weights stay in memory; they are in no file cache"},
       })
    add_foreign(flags, flag);
}

void add_foreign_prompt_flags(Flags& flags) {
  add_foreign(flags, {"jinja", nullptr, "the prompt is taken as it is; chat applies a template"});
  add_foreign(flags,
              {"chat-template", "TEXT", "the prompt is taken as it is; chat applies a template"});
}

}  // namespace canopy::cli
