#pragma once
// Room src/jinja: the template language of chat formats, as Jinja2 3.1 evaluates it, with limits on
// steps and memory.
// In: a template and JSON values. Out: text, or an error with its line.
// Must not know: chats, models, tokens.
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "src/jinja/error.h"
#include "src/jinja/limits.h"

namespace canopy::jinja {

/// A template in the Jinja that chat templates use, as `transformers` runs it: trim_blocks,
/// lstrip_blocks, an immutable sandbox, `break` and `continue`, `generation` blocks, its `tojson`,
/// raise_exception and strftime_now (docs/chat_templates.md has the list). Immutable: any number of
/// threads.
class Template {
 public:
  /// Throws TemplateError: not UTF-8, too long, nested too deep, a statement that is not known, and
  /// errors of syntax.
  explicit Template(std::string_view source);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  /// The text that it makes of the members of `variables`. `now` is local time, for strftime_now.
  /// Throws TemplateError: what the template raises, uses wrongly, or takes beyond the limits.
  std::string render(const nlohmann::ordered_json& variables, const std::tm& now,
                     const Limits& limits = {}) const;
  const std::string& source() const;  // its lines ended by \n

 private:
  struct Parsed;
  std::unique_ptr<const Parsed> parsed_;
};

}  // namespace canopy::jinja
