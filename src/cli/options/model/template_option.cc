#include "src/cli/options/model/template_option.h"

#include "src/base/utf8.h"

namespace canopy::cli {

void TemplateOption::add_to(Flags& flags) {
  flags.add_options()  //
      ("chat-template", into(text, "TEXT"),
       "a template of Jinja, in place of the model's own; no name of one of llama.cpp's")  //
      ("chat-template-file", into(file, "FILE"), "the same, from a file");
}

chat::ChatTemplate TemplateOption::load(const Checkpoint& model,
                                        const std::stop_token& stop) const {
  if (text && file) throw UsageError("--chat-template, --chat-template-file: give one template");
  if (!text) return chat::ChatTemplate::load(model.root(), model.metadata(), file, stop);
  if (!chat::holds_template(*text))
    throw UsageError("--chat-template: " + in_quotes(*text) +
                     " is no template of Jinja, and Canopy has none by a name: leave the flag out "
                     "for the model's own, or give the text of one, or --chat-template-file FILE");
  return chat::ChatTemplate::load_text(model.root(), model.metadata(), *text, "--chat-template");
}

}  // namespace canopy::cli
