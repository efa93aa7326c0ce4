// Statements.
#include "src/jinja/parse/parser.h"

#include <algorithm>

#include "src/base/utf8.h"
#include "src/jinja/error.h"
#include "src/jinja/limits.h"

namespace canopy::jinja {

namespace {

/// A token for a message.
std::string described(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "text";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kPrintBegin:
      return "'{{'";
    case TokenKind::kPrintEnd:
      return "'}}'";
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kString:
      return "the string " + in_quotes(token.text);
    default:
      return in_quotes(token.text);
  }
}

class StatementParser {
 public:
  explicit StatementParser(std::string_view source) : tokens_(source), expressions_(tokens_) {}

  Body run() && {
    Body body;
    read_body(body, {});
    return body;
  }

 private:
  template <class Node>
  static Statement make(std::uint32_t offset, Node node) {
    return Statement{std::move(node), offset};
  }

  /// Statements up to a block whose name is one of `ends`, which is not taken but for its '{%'.
  /// Reads up to the template's end where there are no `ends`.
  void read_body(Body& body, std::initializer_list<std::string_view> ends) {
    const TokenReader::Level level(tokens_);
    for (;;) {
      const std::uint32_t offset = tokens_.offset();
      switch (tokens_.now().kind) {
        case TokenKind::kData:
          body.push_back(make(offset, Data{tokens_.take().text}));
          break;
        case TokenKind::kPrintBegin:
          tokens_.take();
          body.push_back(make(offset, Print{expressions_.whole()}));
          tokens_.expect(TokenKind::kPrintEnd, "'}}'");
          break;
        case TokenKind::kBlockBegin:
          tokens_.take();
          if (std::any_of(ends.begin(), ends.end(),
                          [&](std::string_view end) { return tokens_.at_name(end); }))
            return;
          read_block(body, offset);
          break;
        default:
          if (ends.size() == 0) return;
          tokens_.fail_expected("'{% " + std::string(*(ends.end() - 1)) + " %}'");
      }
    }
  }
  void end_tag() { tokens_.expect(TokenKind::kBlockEnd, "'%}'"); }
  /// The body of a block and its end.
  Body body_until(std::string_view end) {
    end_tag();
    Body body;
    read_body(body, {end});
    tokens_.take();
    end_tag();
    return body;
  }

  void read_block(Body& body, std::uint32_t offset) {
    const std::uint32_t at = tokens_.offset();
    const std::string name = tokens_.expect_name("the name of a statement");
    if (name == "if") return body.push_back(make(offset, read_if()));
    if (name == "for") return body.push_back(make(offset, read_for()));
    if (name == "set") return body.push_back(read_set(offset));
    if (name == "macro") return body.push_back(make(offset, read_macro()));
    if (name == "call") return body.push_back(make(offset, read_call()));
    if (name == "filter") {
      ExprPtr filters = expressions_.block_filters();
      return body.push_back(make(offset, FilterBlock{std::move(filters), body_until("endfilter")}));
    }
    if (name == "with") return body.push_back(make(offset, read_with()));
    if (name == "generation")
      return body.push_back(make(offset, With{{}, body_until("endgeneration")}));
    if (name == "break" || name == "continue") {
      if (loops_ == 0) tokens_.fail(at, joined({"'", name, "' stands outside of a loop"}));
      end_tag();
      return body.push_back(name == "break" ? make(offset, Break{}) : make(offset, Continue{}));
    }
    if (name.starts_with("end") || name == "else" || name == "elif")
      tokens_.fail(at, "unexpected " + in_quotes(name));
    tokens_.fail(at, "the statement " + in_quotes(name) +
                         " is not supported; known: if, for, set, macro, call, filter, with, "
                         "generation, break, continue, raw");
  }

  If read_if() {
    If out;
    for (;;) {
      ExprPtr condition = expressions_.whole();
      end_tag();
      out.branches.emplace_back(std::move(condition), Body());
      read_body(out.branches.back().second, {"elif", "else", "endif"});
      if (!tokens_.take_name("elif")) break;
    }
    if (tokens_.take_name("else")) {
      end_tag();
      read_body(out.otherwise, {"endif"});
    }
    tokens_.take();
    end_tag();
    return out;
  }

  For read_for() {
    For out;
    out.target = expressions_.target(/*members=*/false);
    if (!tokens_.take_name("in")) tokens_.fail_expected("'in'");
    out.items = expressions_.without_condition();
    if (tokens_.take_name("if")) out.condition = expressions_.whole();
    if (tokens_.at_name("recursive"))
      tokens_.fail(tokens_.offset(), "recursive loops are not supported");
    end_tag();
    ++loops_;
    read_body(out.body, {"else", "endfor"});
    --loops_;
    if (tokens_.take_name("else")) {
      end_tag();
      read_body(out.otherwise, {"endfor"});
    }
    tokens_.take();
    end_tag();
    return out;
  }

  Statement read_set(std::uint32_t offset) {
    Target target = expressions_.target(/*members=*/true);
    if (tokens_.take_operator("=")) {
      ExprPtr value = expressions_.whole();
      end_tag();
      return make(offset, Set{std::move(target), std::move(value)});
    }
    ExprPtr filters;
    if (tokens_.take_operator("|")) filters = expressions_.block_filters();
    return make(offset, SetBlock{std::move(target), std::move(filters), body_until("endset")});
  }

  With read_with() {
    With out;
    while (!tokens_.at(TokenKind::kBlockEnd)) {
      if (!out.variables.empty()) tokens_.expect_operator(",");
      Target target = expressions_.target(/*members=*/false);
      tokens_.expect_operator("=");
      out.variables.emplace_back(std::move(target), expressions_.conditional());
    }
    out.body = body_until("endwith");
    return out;
  }

  /// The parameters in brackets.
  void read_parameters(MacroDefinition& macro) {
    tokens_.expect_operator("(");
    while (!tokens_.at_operator(")")) {
      if (!macro.parameters.empty()) tokens_.expect_operator(",");
      const std::uint32_t offset = tokens_.offset();
      std::string name = tokens_.expect_name("a parameter");
      ExprPtr otherwise;
      if (tokens_.take_operator("="))
        otherwise = expressions_.conditional();
      else if (!macro.parameters.empty() && macro.parameters.back().second)
        tokens_.fail(offset, "a parameter without a default follows one that has it");
      macro.parameters.emplace_back(std::move(name), std::move(otherwise));
    }
    tokens_.expect_operator(")");
  }

  /// A macro's body, from which no loop around the macro can be left.
  Body macro_body(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body body = body_until(end);
    loops_ = loops;
    return body;
  }

  MacroDefinition read_macro() {
    MacroDefinition out;
    out.name = tokens_.expect_name("the macro's name");
    read_parameters(out);
    out.body = macro_body("endmacro");
    return out;
  }

  CallBlock read_call() {
    CallBlock out;
    out.caller.name = "caller";
    if (tokens_.at_operator("(")) read_parameters(out.caller);
    out.call = expressions_.unary_call();
    out.caller.body = macro_body("endcall");
    return out;
  }

  TokenReader tokens_;
  ExpressionParser expressions_;
  int loops_ = 0;  // around the statement that is read, in its macro
};

}  // namespace

void TokenReader::expect_operator(std::string_view text) {
  if (!take_operator(text)) fail_expected(joined({"'", text, "'"}));
}

void TokenReader::expect(TokenKind kind, std::string_view what) {
  if (!at(kind)) fail_expected(what);
  take();
}

std::string TokenReader::expect_name(std::string_view what) {
  if (!at(TokenKind::kName)) fail_expected(what);
  return take().text;
}

void TokenReader::fail_expected(std::string_view what) const {
  fail(offset(), "expected " + std::string(what) + ", found " + described(now()));
}

void TokenReader::fail(std::uint32_t offset, std::string message) const {
  fail_at(source_, offset, std::move(message));
}

TokenReader::Level::Level(TokenReader& reader) : reader_(reader) {
  if (reader_.level_ == kMostNesting)
    reader_.fail(reader_.offset(),
                 "the template is nested deeper than " + std::to_string(kMostNesting) + " levels");
  ++reader_.level_;
}

void TokenReader::count_part() {
  if (++parts_ > kMostParts)
    fail(offset(), "the expression has more than " + std::to_string(kMostParts) + " parts");
}

Body parse(std::string_view source) { return StatementParser(source).run(); }

}  // namespace canopy::jinja
