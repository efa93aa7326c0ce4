#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "src/jinja/value.h"

namespace canopy::jinja {

// A template as a tree. Offsets are bytes of the normalized source.

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct ListOf {
  std::vector<ExprPtr> items;
  ListKind kind;
};
struct DictOf {
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
struct Attribute {  // object.name
  ExprPtr object;
  std::string name;
};
struct Item {  // object[key]
  ExprPtr object, key;
};
struct Slice {  // object[start:stop:step]; those left out are null
  ExprPtr object, start, stop, step;
};
struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr spread, named_spread;  // of *list and **dict, or null
};
struct Call {
  ExprPtr callee;
  CallArguments arguments;
};
struct FilterUse {
  ExprPtr subject;  // null: the text of the block that is filtered
  std::string name;
  CallArguments arguments;
};
struct TestUse {
  ExprPtr subject;
  std::string name;
  CallArguments arguments;
};
enum class Operator : std::uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kNegate,
  kPlus,
  kNot,
  kAnd,
  kOr,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};
struct Unary {
  Operator op;
  ExprPtr operand;
};
struct Binary {
  Operator op;
  ExprPtr left, right;
};
struct Comparison {  // a < b == c: each with its neighbour
  ExprPtr first;
  std::vector<std::pair<Operator, ExprPtr>> rest;
};
struct Concatenation {  // a ~ b ~ c
  std::vector<ExprPtr> parts;
};
struct Conditional {  // then if condition else otherwise, which may be null
  ExprPtr condition, then, otherwise;
};

struct Expr {
  std::variant<Literal, Name, ListOf, DictOf, Attribute, Item, Slice, Call, FilterUse, TestUse,
               Unary, Binary, Comparison, Concatenation, Conditional>
      node;
  std::uint32_t offset;
};

/// A target of an assignment: a name, namespace.member, or several in a tuple.
struct Target {
  std::string name, member;
  std::vector<Target> parts;  // of a tuple
  std::uint32_t offset = 0;
};

struct Statement;
using Body = std::vector<Statement>;

struct Data {
  std::string text;
};
struct Print {
  ExprPtr value;
};
struct If {
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExprPtr items, condition;  // which may be null
  Body body, otherwise;
};
struct Set {
  Target target;
  ExprPtr value;
};
struct SetBlock {
  Target target;
  ExprPtr filters;  // FilterUse, or null
  Body body;
};
struct FilterBlock {
  ExprPtr filters;
  Body body;
};
/// {% with %}, and {% generation %}, which marks the model's own words for training.
struct With {
  std::vector<std::pair<Target, ExprPtr>> variables;
  Body body;
};
struct MacroDefinition {
  std::string name;
  std::vector<std::pair<std::string, ExprPtr>> parameters;  // with defaults, or null
  Body body;
};
struct CallBlock {
  MacroDefinition caller;
  ExprPtr call;
};
struct Break {};
struct Continue {};

struct Statement {
  std::variant<Data, Print, If, For, Set, SetBlock, FilterBlock, With, MacroDefinition, CallBlock,
               Break, Continue>
      node;
  std::uint32_t offset;
};

}  // namespace canopy::jinja
