#include "src/jinja/template.h"

#include "src/base/utf8.h"
#include "src/jinja/evaluator.h"
#include "src/jinja/parse/lexer.h"
#include "src/jinja/parse/parser.h"

namespace canopy::jinja {

struct Template::Parsed {
  std::string source;
  Body body;
};

Template::Template(std::string_view source) {
  if (source.size() > kMostSourceBytes)
    throw TemplateError("the template has " + std::to_string(source.size()) +
                            " bytes; the limit is " + std::to_string(kMostSourceBytes),
                        1, 1);
  if (!is_utf8(source)) throw TemplateError("the template is not UTF-8", 1, 1);
  auto parsed = std::make_unique<Parsed>();
  parsed->source = normalized_source(source);
  parsed->body = parse(parsed->source);
  parsed_ = std::move(parsed);
}

Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

const std::string& Template::source() const { return parsed_->source; }

std::string Template::render(const nlohmann::ordered_json& variables, const std::tm& now,
                             const Limits& limits) const {
  Runtime runtime(limits, parsed_->source, now);
  const auto globals = std::make_shared<Scope>(nullptr);
  for (const auto& [name, value] : variables.items()) globals->set(name, runtime.from_json(value));
  Evaluator evaluator(runtime, std::make_shared<Scope>(globals));
  return evaluator.run(parsed_->body);
}

}  // namespace canopy::jinja
