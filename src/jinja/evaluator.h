#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/jinja/parse/ast.h"
#include "src/jinja/runtime.h"

namespace canopy::jinja {

/// Variables, and those around them.
class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> outer) : outer_(std::move(outer)) {}
  /// Null if no scope has it. Literals compare by content, names of the tree outlive the scope.
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
  const std::shared_ptr<Scope>& outer() const { return outer_; }

 private:
  std::shared_ptr<Scope> outer_;
  std::vector<std::pair<std::string_view, Value>> variables_;
};

/// A macro and the scope that it was made in.
struct Macro {
  const MacroDefinition* definition;
  std::shared_ptr<Scope> scope;
  Charge charge;
};

/// Runs a tree. Statements write to the output at hand, expressions give values.
class Evaluator {
 public:
  Evaluator(Runtime& runtime, std::shared_ptr<Scope> globals)
      : runtime_(runtime), scope_(std::move(globals)) {}

  /// The text of the whole template. Throws TemplateError.
  std::string run(const Body& body);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  Flow run_body(const Body& body);
  Flow run_statement(const Statement& statement);
  /// The body's text, in a scope of its own.
  Value captured(const Body& body);
  void write(std::string_view text);

  Flow run(const Data& data);
  Flow run(const Print& print);
  Flow run(const If& branch);
  Flow run(const For& loop);
  Flow run(const Set& set);
  Flow run(const SetBlock& set);
  Flow run(const FilterBlock& block);
  Flow run(const With& with);
  Flow run(const MacroDefinition& macro);
  Flow run(const CallBlock& block);
  Flow run(const Break&) { return Flow::kBreak; }
  Flow run(const Continue&) { return Flow::kContinue; }

  void assign(const Target& target, Value value);
  std::vector<Value> chosen_items(const For& loop, const List& items);
  Value make_macro(const MacroDefinition& definition);
  Value call_macro(const Macro& macro, const Arguments& arguments);
  Value call(const Value& callee, const Arguments& arguments);
  Arguments evaluate(const CallArguments& arguments);
  Value filtered(const Expr* filters, Value text);

  Value evaluate(const Expr& expr);
  Value evaluate_or_none(const ExprPtr& expr);
  Value evaluate(const Literal& literal) { return literal.value; }
  Value evaluate(const Name& name);
  Value evaluate(const ListOf& list);
  Value evaluate(const DictOf& dict);
  Value evaluate(const Attribute& use);
  Value evaluate(const Item& use);
  Value evaluate(const Slice& use);
  Value evaluate(const Call& use);
  Value evaluate(const FilterUse& use);
  Value evaluate(const TestUse& use);
  Value evaluate(const Unary& use);
  Value evaluate(const Binary& use);
  Value evaluate(const Comparison& use);
  Value evaluate(const Concatenation& use);
  Value evaluate(const Conditional& use);

  Runtime& runtime_;
  std::shared_ptr<Scope> scope_;
  Output* output_ = nullptr;
  bool captures_ = false;  // the output at hand is a value's, not the template's
  std::vector<std::unique_ptr<Macro>> macros_;
};

}  // namespace canopy::jinja
