// Statements.
#include <algorithm>

#include "src/jinja/evaluator.h"
#include "src/jinja/operators.h"
#include "src/jinja/scoped.h"
#include "src/jinja/to_text.h"

namespace canopy::jinja {

using ScopedScope = Scoped<std::shared_ptr<Scope>>;

std::string Evaluator::run(const Body& body) {
  Output output(runtime_);
  const Scoped<Output*> at(output_, &output);
  run_body(body);
  return std::move(output).take();
}

Evaluator::Flow Evaluator::run_body(const Body& body) {
  for (const Statement& statement : body)
    if (const Flow flow = run_statement(statement); flow != Flow::kNext) return flow;
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run_statement(const Statement& statement) {
  const Runtime::Evaluation at(runtime_, statement.offset);
  return std::visit([&](const auto& node) { return run(node); }, statement.node);
}

void Evaluator::write(std::string_view text) {
  const std::size_t most = runtime_.limits().output_bytes;
  if (!captures_ && text.size() > most - output_->size())
    runtime_.fail("the template makes more than " + std::to_string(most) + " bytes of text");
  output_->append(text);
}

Value Evaluator::captured(const Body& body) {
  Output output(runtime_);
  const Scoped<Output*> at(output_, &output);
  const Scoped<bool> captures(captures_, true);
  const ScopedScope inside(scope_, std::make_shared<Scope>(scope_));
  run_body(body);
  return runtime_.string(std::move(output).take());
}

Evaluator::Flow Evaluator::run(const Data& data) {
  write(data.text);
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run(const Print& print) {
  write(to_string(runtime_, evaluate(*print.value)).string());
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run(const If& branch) {
  for (const auto& [condition, body] : branch.branches)
    if (truthy(evaluate(*condition))) return run_body(body);
  return run_body(branch.otherwise);
}

/// The items for which the loop's condition holds; it sees the target, but no `loop`.
std::vector<Value> Evaluator::chosen_items(const For& loop, const List& items) {
  std::vector<Value> out;
  for (const Value& item : items.items) {
    const ScopedScope inside(scope_, std::make_shared<Scope>(scope_));
    assign(loop.target, item);
    if (truthy(evaluate(*loop.condition))) out.push_back(item);
  }
  return out;
}

Evaluator::Flow Evaluator::run(const For& loop) {
  const Value over = evaluate(*loop.items);
  std::shared_ptr<const List> items = iterate(runtime_, over).list();
  if (loop.condition) items = runtime_.list(chosen_items(loop, *items)).shared_list();
  const auto state = std::make_shared<Loop>(Loop{items, 0});
  // Jinja runs the `else` also where every turn was left by break or continue.
  bool completed = false;
  for (; state->at < items->items.size(); ++state->at) {
    const ScopedScope inside(scope_, std::make_shared<Scope>(scope_));
    runtime_.step();
    assign(loop.target, items->items[state->at]);
    scope_->set("loop", Value(state));
    const Flow flow = run_body(loop.body);
    completed = completed || flow == Flow::kNext;
    if (flow == Flow::kBreak) break;
  }
  if (completed) return Flow::kNext;
  const ScopedScope inside(scope_, std::make_shared<Scope>(scope_));
  return run_body(loop.otherwise);
}

void Evaluator::assign(const Target& target, Value value) {
  if (!target.parts.empty()) {
    const auto items = iterate(runtime_, value);
    const std::size_t wanted = target.parts.size(), found = items.all().size();
    if (found > wanted)
      runtime_.fail("too many values to unpack (expected " + std::to_string(wanted) + ")");
    if (found < wanted)
      runtime_.fail("not enough values to unpack (expected " + std::to_string(wanted) + ", got " +
                    std::to_string(found) + ")");
    for (std::size_t i = 0; i < wanted; ++i) assign(target.parts[i], items.all()[i]);
    return;
  }
  if (target.member.empty()) return scope_->set(target.name, std::move(value));
  const Value* space = scope_->find(target.name);
  if (!space || !space->is(Kind::kNamespace))
    runtime_.fail("cannot assign attribute on non-namespace object");
  Namespace& members = space->name_space();
  if (Value* old = members.find(target.member))
    *old = std::move(value);
  else
    members.members.emplace_back(target.member, std::move(value));
}

Evaluator::Flow Evaluator::run(const Set& set) {
  assign(set.target, evaluate(*set.value));
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run(const SetBlock& set) {
  assign(set.target, filtered(set.filters.get(), captured(set.body)));
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run(const FilterBlock& block) {
  const Value text = filtered(block.filters.get(), captured(block.body));
  write(to_string(runtime_, text).string());
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run(const With& with) {
  const auto inside_scope = std::make_shared<Scope>(scope_);
  std::vector<Value> values;
  for (const auto& [target, expr] : with.variables) values.push_back(evaluate(*expr));
  const ScopedScope inside(scope_, inside_scope);
  for (std::size_t i = 0; i < values.size(); ++i)
    assign(with.variables[i].first, std::move(values[i]));
  return run_body(with.body);
}

Evaluator::Flow Evaluator::run(const MacroDefinition& macro) {
  scope_->set(macro.name, make_macro(macro));
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run(const CallBlock& block) {
  const auto& use = std::get<Call>(block.call->node);
  const Value callee = evaluate(*use.callee);
  Arguments arguments = evaluate(use.arguments);
  arguments.named.emplace_back("caller", make_macro(block.caller));
  write(to_string(runtime_, call(callee, arguments)).string());
  return Flow::kNext;
}

}  // namespace canopy::jinja
