#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "src/jinja/parse/ast.h"
#include "src/jinja/parse/lexer.h"

namespace canopy::jinja {

/// The tree of a normalized source. Throws TemplateError.
Body parse(std::string_view source);

/// The tokens, one after the other, and what bounds their nesting.
class TokenReader {
 public:
  explicit TokenReader(std::string_view source) : source_(source), tokens_(tokenize(source)) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  std::uint32_t offset() const { return now().offset; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool at(TokenKind kind) const { return now().kind == kind; }
  bool at_operator(std::string_view text) const {
    return at(TokenKind::kOperator) && now().text == text;
  }
  bool at_name(std::string_view name) const { return at(TokenKind::kName) && now().text == name; }
  bool take_operator(std::string_view text) { return at_operator(text) && (take(), true); }
  bool take_name(std::string_view name) { return at_name(name) && (take(), true); }
  void expect_operator(std::string_view text);
  void expect(TokenKind kind, std::string_view what);
  std::string expect_name(std::string_view what);
  /// "expected X, found Y"
  [[noreturn]] void fail_expected(std::string_view what) const;
  [[noreturn]] void fail(std::uint32_t offset, std::string message) const;

  /// One level deeper, for as long as it lives.
  class Level {
   public:
    explicit Level(TokenReader& reader);
    ~Level() { --reader_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    TokenReader& reader_;
  };
  /// One more operator or suffix of the expression that begins at the last begin_parts().
  void count_part();
  void begin_parts() { parts_ = 0; }

 private:
  std::string_view source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int level_ = 0, parts_ = 0;
};

/// Expressions, by falling precedence as Jinja has them.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenReader& tokens) : tokens_(tokens) {}

  /// A whole one; a tuple if it has commas.
  ExprPtr whole();
  /// The same, with no `x if y else z` outside of brackets: what a loop runs over.
  ExprPtr without_condition();
  ExprPtr conditional();
  ExprPtr unary_call();  // the call of {% call %}
  /// a.b or (a, b) or a, b
  Target target(bool members);
  /// name(arguments)|name..., of a block's text.
  ExprPtr block_filters();
  CallArguments call_arguments();

 private:
  ExprPtr any_or();
  ExprPtr any_and();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters);
  ExprPtr primary();
  ExprPtr number();
  ExprPtr list();
  ExprPtr dict();
  ExprPtr parenthesized();
  ExprPtr suffixes(ExprPtr value);
  ExprPtr subscript(ExprPtr object);
  ExprPtr filters_and_tests(ExprPtr value);
  ExprPtr filter(ExprPtr subject);
  ExprPtr test(ExprPtr subject);
  Target single_target(bool members);
  ExprPtr tuple(ExprPtr (ExpressionParser::*item)());
  bool at_tuple_end() const;

  TokenReader& tokens_;
};

}  // namespace canopy::jinja
