// Expressions and calls.
#include "src/jinja/evaluator.h"

#include "src/base/utf8.h"
#include "src/jinja/error.h"
#include "src/jinja/functions/filters.h"
#include "src/jinja/operators.h"
#include "src/jinja/scoped.h"
#include "src/jinja/to_text.h"

namespace canopy::jinja {

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer_.get())
    for (const auto& [key, value] : scope->variables_)
      if (key == name) return &value;
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : variables_) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  variables_.emplace_back(name, std::move(value));
}

Value Evaluator::evaluate(const Expr& expr) {
  const Runtime::Evaluation at(runtime_, expr.offset);
  return std::visit([&](const auto& node) { return evaluate(node); }, expr.node);
}

Value Evaluator::evaluate_or_none(const ExprPtr& expr) {
  return expr ? evaluate(*expr) : Value(None{});
}

Value Evaluator::evaluate(const Name& name) {
  if (const Value* found = scope_->find(name.name)) return *found;
  if (const Method* function = find_function(name.name)) return runtime_.bound(*function, Value());
  return runtime_.undefined(joined({"'", name.name, "' is undefined"}));
}

Value Evaluator::evaluate(const ListOf& list) {
  std::vector<Value> items;
  for (const ExprPtr& item : list.items) items.push_back(evaluate(*item));
  return runtime_.list(std::move(items), list.kind);
}

Value Evaluator::evaluate(const DictOf& dict) {
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [key_expr, value_expr] : dict.entries) {
    Value key = evaluate(*key_expr);
    Value value = evaluate(*value_expr);
    if (!key.is(Kind::kString) && !key.is_number() && !key.is(Kind::kNone))
      runtime_.fail("unhashable type: '" + std::string(type_name(key)) + "'");
    bool found = false;
    for (auto& [name, old] : entries)
      if (equal(runtime_, name, key)) {
        old = value;
        found = true;
      }
    if (!found) entries.emplace_back(std::move(key), std::move(value));
  }
  return runtime_.dict(std::move(entries));
}

Value Evaluator::evaluate(const Attribute& use) {
  return attribute(runtime_, evaluate(*use.object), use.name);
}

Value Evaluator::evaluate(const Item& use) {
  const Value object = evaluate(*use.object);
  return item(runtime_, object, evaluate(*use.key));
}

Value Evaluator::evaluate(const Slice& use) {
  const Value object = evaluate(*use.object);
  const Value start = evaluate_or_none(use.start), stop = evaluate_or_none(use.stop);
  return slice(runtime_, object, start, stop, evaluate_or_none(use.step));
}

Arguments Evaluator::evaluate(const CallArguments& arguments) {
  Arguments out;
  for (const ExprPtr& expr : arguments.positional) out.positional.push_back(evaluate(*expr));
  for (const auto& [name, expr] : arguments.named) out.named.emplace_back(name, evaluate(*expr));
  if (arguments.spread)
    for (const Value& item : iterate(runtime_, evaluate(*arguments.spread)))
      out.positional.push_back(item);
  if (arguments.named_spread) {
    const Value more = evaluate(*arguments.named_spread);
    if (!more.is(Kind::kDict)) runtime_.fail("the argument after ** must be a mapping");
    for (const auto& [key, value] : more.dict().entries) {
      if (!key.is(Kind::kString)) runtime_.fail("keywords must be strings");
      out.named.emplace_back(key.string(), value);
    }
  }
  return out;
}

Value Evaluator::evaluate(const Call& use) {
  const Value callee = evaluate(*use.callee);
  return call(callee, evaluate(use.arguments));
}

Value Evaluator::evaluate(const FilterUse& use) {
  const Value subject = evaluate(*use.subject);
  return apply_filter(runtime_, use.name, subject, evaluate(use.arguments));
}

Value Evaluator::evaluate(const TestUse& use) {
  const Value subject = evaluate(*use.subject);
  return Value(apply_test(runtime_, use.name, subject, evaluate(use.arguments)));
}

Value Evaluator::evaluate(const Unary& use) {
  const Value operand = evaluate(*use.operand);
  return use.op == Operator::kNot ? Value(!truthy(operand)) : sign(runtime_, use.op, operand);
}

Value Evaluator::evaluate(const Binary& use) {
  Value left = evaluate(*use.left);
  if (use.op == Operator::kAnd) return truthy(left) ? evaluate(*use.right) : left;
  if (use.op == Operator::kOr) return truthy(left) ? left : evaluate(*use.right);
  return arithmetic(runtime_, use.op, left, evaluate(*use.right));
}

Value Evaluator::evaluate(const Comparison& use) {
  Value left = evaluate(*use.first);
  for (const auto& [op, expr] : use.rest) {
    Value right = evaluate(*expr);
    if (!compare(runtime_, op, left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Evaluator::evaluate(const Concatenation& use) {
  Output out(runtime_);
  for (const ExprPtr& part : use.parts) append_text(runtime_, out, evaluate(*part));
  return runtime_.string(std::move(out).take());
}

Value Evaluator::evaluate(const Conditional& use) {
  if (truthy(evaluate(*use.condition))) return evaluate(*use.then);
  if (use.otherwise) return evaluate(*use.otherwise);
  return runtime_.undefined(
      "the inline if-expression evaluated to false and no else section was defined.");
}

Value Evaluator::call(const Value& callee, const Arguments& arguments) {
  require_defined(runtime_, callee);
  if (callee.is(Kind::kMacro)) return call_macro(callee.macro(), arguments);
  if (!callee.is(Kind::kMethod))
    runtime_.fail(joined({"'", type_name(callee), "' object is not callable"}));
  const BoundMethod& method = callee.method();
  return call_method(runtime_, *method.method, method.self, arguments);
}

Value Evaluator::make_macro(const MacroDefinition& definition) {
  auto made = std::make_unique<Macro>(Macro{&definition, scope_, Charge(runtime_)});
  made->charge.grow(sizeof(Macro) + sizeof(Scope));
  macros_.push_back(std::move(made));
  return Value(static_cast<const Macro*>(macros_.back().get()));
}

Value Evaluator::call_macro(const Macro& macro, const Arguments& arguments) {
  const MacroDefinition& definition = *macro.definition;
  const auto& parameters = definition.parameters;
  if (arguments.positional.size() > parameters.size())
    runtime_.fail("macro '" + definition.name + "' takes not more than " +
                  std::to_string(parameters.size()) + " argument(s)");
  const Scoped<std::shared_ptr<Scope>> inside(scope_, std::make_shared<Scope>(macro.scope));
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    scope_->set(parameters[i].first, arguments.positional[i]);
  std::vector<bool> given(parameters.size());
  std::fill_n(given.begin(), arguments.positional.size(), true);
  for (const auto& [name, value] : arguments.named) {
    std::size_t at = 0;
    while (at < parameters.size() && parameters[at].first != name) ++at;
    if (at < parameters.size() && !given[at]) {
      given[at] = true;
      scope_->set(parameters[at].first, value);
    } else if (at == parameters.size() && name == "caller") {
      scope_->set("caller", value);
    } else {
      runtime_.fail("macro '" + definition.name + "' takes no keyword argument " + in_quotes(name) +
                    (at < parameters.size() ? " beside the one in its place" : ""));
    }
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (given[i]) continue;
    const auto& [name, otherwise] = parameters[i];
    scope_->set(name, otherwise ? evaluate(*otherwise)
                                : runtime_.undefined("parameter '" + name + "' was not provided"));
  }
  return captured(definition.body);
}

Value Evaluator::filtered(const Expr* filters, Value text) {
  if (!filters) return text;
  const Runtime::Evaluation at(runtime_, filters->offset);
  const auto& use = std::get<FilterUse>(filters->node);
  const Value subject = filtered(use.subject.get(), std::move(text));
  return apply_filter(runtime_, use.name, subject, evaluate(use.arguments));
}

}  // namespace canopy::jinja
