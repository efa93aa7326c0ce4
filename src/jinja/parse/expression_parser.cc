// Expressions. Precedence, from loose to tight: a if b else c; or; and; not; comparisons; + -; ~;
// * / // %; **; - + before a value; calls, filters and tests.
#include <array>
#include <charconv>
#include <optional>

#include "src/base/utf8.h"
#include "src/jinja/parse/parser.h"

namespace canopy::jinja {

namespace {

template <class Node>
ExprPtr make(std::uint32_t offset, Node node) {
  return std::make_unique<Expr>(Expr{std::move(node), offset});
}

struct Spelling {
  std::string_view text;
  Operator op;
};

template <std::size_t n>
std::optional<Operator> take_one(TokenReader& tokens, const std::array<Spelling, n>& of) {
  for (const auto& [text, op] : of)
    if (tokens.take_operator(text)) return op;
  return {};
}

}  // namespace

ExprPtr ExpressionParser::whole() {
  tokens_.begin_parts();
  return tuple(&ExpressionParser::conditional);
}

ExprPtr ExpressionParser::without_condition() {
  tokens_.begin_parts();
  return tuple(&ExpressionParser::any_or);
}

bool ExpressionParser::at_tuple_end() const {
  return tokens_.at(TokenKind::kPrintEnd) || tokens_.at(TokenKind::kBlockEnd) ||
         tokens_.at_operator(")") || tokens_.at_name("recursive");
}

ExprPtr ExpressionParser::tuple(ExprPtr (ExpressionParser::*item)()) {
  const std::uint32_t offset = tokens_.offset();
  ExprPtr first = (this->*item)();
  if (!tokens_.at_operator(",")) return first;
  ListOf items{{}, ListKind::kTuple};
  items.items.push_back(std::move(first));
  while (tokens_.take_operator(",") && !at_tuple_end()) items.items.push_back((this->*item)());
  return make(offset, std::move(items));
}

ExprPtr ExpressionParser::conditional() {
  const TokenReader::Level level(tokens_);
  ExprPtr value = any_or();
  while (tokens_.at_name("if")) {
    const std::uint32_t offset = tokens_.take().offset;
    tokens_.count_part();
    ExprPtr condition = any_or();
    ExprPtr otherwise = tokens_.take_name("else") ? conditional() : nullptr;
    value = make(offset, Conditional{std::move(condition), std::move(value), std::move(otherwise)});
  }
  return value;
}

ExprPtr ExpressionParser::any_or() {
  ExprPtr left = any_and();
  while (tokens_.at_name("or")) {
    const std::uint32_t offset = tokens_.take().offset;
    tokens_.count_part();
    ExprPtr right = any_and();
    left = make(offset, Binary{Operator::kOr, std::move(left), std::move(right)});
  }
  return left;
}

ExprPtr ExpressionParser::any_and() {
  ExprPtr left = negation();
  while (tokens_.at_name("and")) {
    const std::uint32_t offset = tokens_.take().offset;
    tokens_.count_part();
    ExprPtr right = negation();
    left = make(offset, Binary{Operator::kAnd, std::move(left), std::move(right)});
  }
  return left;
}

ExprPtr ExpressionParser::negation() {
  if (!tokens_.at_name("not")) return comparison();
  const TokenReader::Level level(tokens_);
  const std::uint32_t offset = tokens_.take().offset;
  return make(offset, Unary{Operator::kNot, negation()});
}

ExprPtr ExpressionParser::comparison() {
  static constexpr std::array<Spelling, 6> kSpellings{{{"==", Operator::kEqual},
                                                       {"!=", Operator::kNotEqual},
                                                       {"<=", Operator::kLessEqual},
                                                       {">=", Operator::kGreaterEqual},
                                                       {"<", Operator::kLess},
                                                       {">", Operator::kGreater}}};
  ExprPtr first = sum();
  const std::uint32_t offset = tokens_.offset();
  std::vector<std::pair<Operator, ExprPtr>> rest;
  for (;;) {
    std::optional<Operator> op = take_one(tokens_, kSpellings);
    if (!op && tokens_.take_name("in")) op = Operator::kIn;
    if (!op && tokens_.at_name("not") && tokens_.next().kind == TokenKind::kName &&
        tokens_.next().text == "in") {
      tokens_.take(), tokens_.take();
      op = Operator::kNotIn;
    }
    if (!op) break;
    tokens_.count_part();
    rest.emplace_back(*op, sum());
  }
  if (rest.empty()) return first;
  return make(offset, Comparison{std::move(first), std::move(rest)});
}

ExprPtr ExpressionParser::sum() {
  static constexpr std::array<Spelling, 2> kSpellings{
      {{"+", Operator::kAdd}, {"-", Operator::kSubtract}}};
  ExprPtr left = concatenation();
  for (;;) {
    const std::uint32_t offset = tokens_.offset();
    const std::optional<Operator> op = take_one(tokens_, kSpellings);
    if (!op) return left;
    tokens_.count_part();
    ExprPtr right = concatenation();
    left = make(offset, Binary{*op, std::move(left), std::move(right)});
  }
}

ExprPtr ExpressionParser::concatenation() {
  const std::uint32_t offset = tokens_.offset();
  ExprPtr first = product();
  if (!tokens_.at_operator("~")) return first;
  Concatenation all;
  all.parts.push_back(std::move(first));
  while (tokens_.take_operator("~")) all.parts.push_back(product());
  return make(offset, std::move(all));
}

ExprPtr ExpressionParser::product() {
  static constexpr std::array<Spelling, 4> kSpellings{{{"*", Operator::kMultiply},
                                                       {"/", Operator::kDivide},
                                                       {"//", Operator::kFloorDivide},
                                                       {"%", Operator::kModulo}}};
  ExprPtr left = power();
  for (;;) {
    const std::uint32_t offset = tokens_.offset();
    const std::optional<Operator> op = take_one(tokens_, kSpellings);
    if (!op) return left;
    tokens_.count_part();
    ExprPtr right = power();
    left = make(offset, Binary{*op, std::move(left), std::move(right)});
  }
}

ExprPtr ExpressionParser::power() {
  ExprPtr left = unary(/*with_filters=*/true);
  while (tokens_.at_operator("**")) {
    const std::uint32_t offset = tokens_.take().offset;
    tokens_.count_part();
    ExprPtr right = unary(/*with_filters=*/true);
    left = make(offset, Binary{Operator::kPower, std::move(left), std::move(right)});
  }
  return left;
}

ExprPtr ExpressionParser::unary(bool with_filters) {
  const TokenReader::Level level(tokens_);
  const std::uint32_t offset = tokens_.offset();
  ExprPtr value;
  if (tokens_.take_operator("-"))
    value = make(offset, Unary{Operator::kNegate, unary(/*with_filters=*/false)});
  else if (tokens_.take_operator("+"))
    value = make(offset, Unary{Operator::kPlus, unary(/*with_filters=*/false)});
  else
    value = primary();
  value = suffixes(std::move(value));
  return with_filters ? filters_and_tests(std::move(value)) : std::move(value);
}

ExprPtr ExpressionParser::primary() {
  const Token& token = tokens_.now();
  const std::uint32_t offset = token.offset;
  switch (token.kind) {
    case TokenKind::kName: {
      std::string name = tokens_.take().text;
      if (name == "true" || name == "True") return make(offset, Literal{Value(true)});
      if (name == "false" || name == "False") return make(offset, Literal{Value(false)});
      if (name == "none" || name == "None") return make(offset, Literal{Value(None{})});
      return make(offset, Name{std::move(name)});
    }
    case TokenKind::kString: {  // neighbours are one
      std::string text;
      while (tokens_.at(TokenKind::kString)) text += tokens_.take().text;
      return make(offset, Literal{Value::literal(std::move(text))});
    }
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return number();
    default:
      if (tokens_.at_operator("(")) return parenthesized();
      if (tokens_.at_operator("[")) return list();
      if (tokens_.at_operator("{")) return dict();
      tokens_.fail_expected("a value");
  }
}

ExprPtr ExpressionParser::number() {
  const Token token = tokens_.take();
  const char* const end = token.text.data() + token.text.size();
  if (token.kind == TokenKind::kInteger) {
    std::int64_t value = 0;
    if (std::from_chars(token.text.data(), end, value).ec != std::errc())
      tokens_.fail(token.offset, "the integer does not fit 63 bits");
    return make(token.offset, Literal{Value(value)});
  }
  double value = 0;
  if (std::from_chars(token.text.data(), end, value).ec != std::errc())
    tokens_.fail(token.offset, "the number is too large or too small");
  return make(token.offset, Literal{Value(value)});
}

ExprPtr ExpressionParser::parenthesized() {
  const std::uint32_t offset = tokens_.take().offset;
  if (tokens_.take_operator(")")) return make(offset, ListOf{{}, ListKind::kTuple});
  ExprPtr value = tuple(&ExpressionParser::conditional);
  tokens_.expect_operator(")");
  return value;
}

ExprPtr ExpressionParser::list() {
  const std::uint32_t offset = tokens_.take().offset;
  ListOf items{{}, ListKind::kList};
  while (!tokens_.at_operator("]")) {
    if (!items.items.empty()) tokens_.expect_operator(",");
    if (tokens_.at_operator("]")) break;
    items.items.push_back(conditional());
  }
  tokens_.expect_operator("]");
  return make(offset, std::move(items));
}

ExprPtr ExpressionParser::dict() {
  const std::uint32_t offset = tokens_.take().offset;
  DictOf dict;
  while (!tokens_.at_operator("}")) {
    if (!dict.entries.empty()) tokens_.expect_operator(",");
    if (tokens_.at_operator("}")) break;
    ExprPtr key = conditional();
    tokens_.expect_operator(":");
    dict.entries.emplace_back(std::move(key), conditional());
  }
  tokens_.expect_operator("}");
  return make(offset, std::move(dict));
}

ExprPtr ExpressionParser::suffixes(ExprPtr value) {
  for (;;) {
    const std::uint32_t offset = tokens_.offset();
    if (tokens_.take_operator(".")) {
      if (tokens_.at(TokenKind::kInteger))
        value = make(offset, Item{std::move(value), number()});
      else
        value = make(offset, Attribute{std::move(value), tokens_.expect_name("a name after '.'")});
    } else if (tokens_.at_operator("[")) {
      value = subscript(std::move(value));
    } else if (tokens_.at_operator("(")) {
      value = make(offset, Call{std::move(value), call_arguments()});
    } else {
      return value;
    }
    tokens_.count_part();
  }
}

ExprPtr ExpressionParser::subscript(ExprPtr object) {
  const std::uint32_t offset = tokens_.take().offset;
  if (tokens_.at_operator("]")) tokens_.fail_expected("a key between '[' and ']'");
  const auto part = [&]() -> ExprPtr {
    return tokens_.at_operator(":") || tokens_.at_operator("]") ? nullptr : conditional();
  };
  ExprPtr start = part();
  if (tokens_.take_operator("]")) return make(offset, Item{std::move(object), std::move(start)});
  if (start && tokens_.at_operator(",")) {
    ListOf key{{}, ListKind::kTuple};
    key.items.push_back(std::move(start));
    while (tokens_.take_operator(",")) key.items.push_back(conditional());
    tokens_.expect_operator("]");
    return make(offset, Item{std::move(object), make(offset, std::move(key))});
  }
  tokens_.expect_operator(":");
  ExprPtr stop = part();
  ExprPtr step = tokens_.take_operator(":") ? part() : nullptr;
  tokens_.expect_operator("]");
  return make(offset, Slice{std::move(object), std::move(start), std::move(stop), std::move(step)});
}

CallArguments ExpressionParser::call_arguments() {
  const TokenReader::Level level(tokens_);
  tokens_.expect_operator("(");
  CallArguments out;
  bool first = true;
  while (!tokens_.at_operator(")")) {
    if (!first) tokens_.expect_operator(",");
    if (tokens_.at_operator(")")) break;
    first = false;
    const std::uint32_t offset = tokens_.offset();
    if (tokens_.at_operator("*") || tokens_.at_operator("**")) {
      ExprPtr& spread = tokens_.take().text == "*" ? out.spread : out.named_spread;
      if (spread) tokens_.fail(offset, "only one argument may have this '*'");
      spread = conditional();
    } else if (tokens_.at(TokenKind::kName) && tokens_.next().kind == TokenKind::kOperator &&
               tokens_.next().text == "=") {
      std::string name = tokens_.take().text;
      tokens_.take();
      out.named.emplace_back(std::move(name), conditional());
    } else {
      if (!out.named.empty()) tokens_.fail(offset, "an argument without a name follows named ones");
      out.positional.push_back(conditional());
    }
  }
  tokens_.expect_operator(")");
  return out;
}

ExprPtr ExpressionParser::filters_and_tests(ExprPtr value) {
  for (;;) {
    if (tokens_.at_operator("|")) {
      value = filter(std::move(value));
    } else if (tokens_.at_name("is")) {
      value = test(std::move(value));
    } else if (tokens_.at_operator("(")) {
      const std::uint32_t offset = tokens_.offset();
      value = make(offset, Call{std::move(value), call_arguments()});
    } else {
      return value;
    }
    tokens_.count_part();
  }
}

ExprPtr ExpressionParser::filter(ExprPtr subject) {
  const std::uint32_t offset = tokens_.take().offset;
  std::string name = tokens_.expect_name("a filter");
  CallArguments arguments;
  if (tokens_.at_operator("(")) arguments = call_arguments();
  return make(offset, FilterUse{std::move(subject), std::move(name), std::move(arguments)});
}

ExprPtr ExpressionParser::block_filters() {
  tokens_.begin_parts();
  const std::uint32_t offset = tokens_.offset();
  FilterUse first{nullptr, tokens_.expect_name("a filter"), {}};
  if (tokens_.at_operator("(")) first.arguments = call_arguments();
  ExprPtr all = make(offset, std::move(first));
  while (tokens_.at_operator("|")) {
    tokens_.count_part();
    all = filter(std::move(all));
  }
  return all;
}

ExprPtr ExpressionParser::test(ExprPtr subject) {
  const std::uint32_t offset = tokens_.take().offset;
  const bool negated = tokens_.take_name("not");
  TestUse use{std::move(subject), tokens_.expect_name("a test"), {}};
  const bool bare_argument = tokens_.at(TokenKind::kString) || tokens_.at(TokenKind::kInteger) ||
                             tokens_.at(TokenKind::kFloat) || tokens_.at_operator("[") ||
                             tokens_.at_operator("{") ||
                             (tokens_.at(TokenKind::kName) && !tokens_.at_name("else") &&
                              !tokens_.at_name("or") && !tokens_.at_name("and"));
  if (tokens_.at_operator("(")) {
    use.arguments = call_arguments();
  } else if (bare_argument) {
    if (tokens_.at_name("is"))
      tokens_.fail(tokens_.offset(), "tests cannot be chained; join them by 'and'");
    use.arguments.positional.push_back(suffixes(primary()));
  }
  ExprPtr made = make(offset, std::move(use));
  return negated ? make(offset, Unary{Operator::kNot, std::move(made)}) : std::move(made);
}

ExprPtr ExpressionParser::unary_call() {
  tokens_.begin_parts();
  const std::uint32_t offset = tokens_.offset();
  ExprPtr made = conditional();
  if (!std::holds_alternative<Call>(made->node)) tokens_.fail(offset, "expected a call");
  return made;
}

Target ExpressionParser::single_target(bool members) {
  const TokenReader::Level level(tokens_);
  if (tokens_.take_operator("(")) {
    Target inner = target(members);
    tokens_.expect_operator(")");
    return inner;
  }
  Target out;
  out.offset = tokens_.offset();
  out.name = tokens_.expect_name("a name to assign to");
  for (const std::string_view name : {"true", "false", "none", "True", "False", "None"})
    if (out.name == name) tokens_.fail(out.offset, "cannot assign to '" + out.name + "'");
  if (members && tokens_.take_operator(".")) out.member = tokens_.expect_name("a name after '.'");
  return out;
}

Target ExpressionParser::target(bool members) {
  Target first = single_target(members);
  if (!tokens_.at_operator(",")) return first;
  Target out;
  out.offset = first.offset;
  out.parts.push_back(std::move(first));
  while (tokens_.take_operator(",") && tokens_.at(TokenKind::kName) && !tokens_.at_name("in"))
    out.parts.push_back(single_target(members));
  return out;
}

}  // namespace canopy::jinja
