#include "src/jinja/operators.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <compare>
#include <limits>
#include <optional>

#include "src/jinja/characters.h"
#include "src/jinja/error.h"
#include "src/jinja/functions/filters.h"
#include "src/jinja/to_text.h"

namespace canopy::jinja {

namespace {

std::string_view spelling(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
    case Operator::kNegate:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    case Operator::kPower:
      return "** or pow()";
    case Operator::kLessEqual:
      return "<=";
    case Operator::kGreater:
      return ">";
    case Operator::kGreaterEqual:
      return ">=";
    default:
      return "<";
  }
}

std::string quoted_type(const Value& value) { return joined({"'", type_name(value), "'"}); }

bool equal_lists(Runtime& runtime, const List& a, const List& b) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i)
    if (!equal(runtime, a.items[i], b.items[i])) return false;
  return true;
}

bool equal_dicts(Runtime& runtime, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(runtime, key);
    if (other == nullptr || !equal(runtime, value, *other)) return false;
  }
  return true;
}

/// The integer that the operation gives, or an error: Python's have no end, ours have 63 bits.
Value integer_arithmetic(Runtime& runtime, Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kFloorDivide:
    case Operator::kModulo: {
      if (b == 0)
        runtime.fail(op == Operator::kModulo ? "integer modulo by zero"
                                             : "integer division or modulo by zero");
      if (b == -1) {  // of the smallest integer the machine has no quotient
        if (op == Operator::kModulo) return Value(std::int64_t{0});
        overflow = __builtin_sub_overflow(std::int64_t{0}, a, &result);
        break;
      }
      const std::int64_t rest = a % b;
      const bool below = rest != 0 && (rest < 0) != (b < 0);
      result = op == Operator::kModulo ? rest + (below ? b : 0) : a / b - below;
      break;
    }
    default: {  // kPower
      result = 1;
      while (b > 0 && !overflow) {
        if (b % 2 == 1) overflow = __builtin_mul_overflow(result, a, &result);
        b /= 2;
        if (b > 0) overflow = overflow || __builtin_mul_overflow(a, a, &a);
      }
    }
  }
  if (overflow)
    runtime.fail("the result of '" + std::string(spelling(op)) + "' needs more than 63 bits");
  return Value(result);
}

Value float_arithmetic(Runtime& runtime, Operator op, double a, double b) {
  if (b == 0 &&
      (op == Operator::kDivide || op == Operator::kFloorDivide || op == Operator::kModulo))
    runtime.fail("float division by zero");
  switch (op) {
    case Operator::kAdd:
      return Value(a + b);
    case Operator::kSubtract:
      return Value(a - b);
    case Operator::kMultiply:
      return Value(a * b);
    case Operator::kDivide:
      return Value(a / b);
    case Operator::kFloorDivide:
      return Value(std::floor(a / b));
    case Operator::kModulo: {
      const double rest = std::fmod(a, b);
      return Value(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    }
    default:
      return Value(std::pow(a, b));
  }
}

Value numbers(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  const bool integers = a.is_integer() && b.is_integer();
  if (op == Operator::kDivide && integers && b.integer() == 0) runtime.fail("division by zero");
  const bool negative_power = op == Operator::kPower && integers && b.integer() < 0;
  if (integers && op != Operator::kDivide && !negative_power)
    return integer_arithmetic(runtime, op, a.integer(), b.integer());
  return float_arithmetic(runtime, op, a.number(), b.number());
}

Value repeat(Runtime& runtime, const Value& value, std::int64_t times) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(0, times));
  if (value.is(Kind::kString)) {
    const std::string_view text = value.string();
    runtime.check_size(count, text.size());
    std::string out;
    out.reserve(count * text.size());
    if (!text.empty())
      for (std::size_t i = 0; i < count; ++i) out += text;
    return runtime.string(std::move(out), value.text().safe);
  }
  const List& list = value.list();
  runtime.check_size(count, list.items.size() * sizeof(Value));
  std::vector<Value> out;
  out.reserve(count * list.items.size());
  if (!list.items.empty())
    for (std::size_t i = 0; i < count; ++i)
      out.insert(out.end(), list.items.begin(), list.items.end());
  return runtime.list(std::move(out), list.kind);
}

bool repeats(const Value& value) {
  return value.is(Kind::kString) || (value.is(Kind::kList) && !value.is_generator());
}

Value add_sequences(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is(Kind::kString)) {
    const bool safe = a.text().safe || b.text().safe;
    if (safe && a.text().safe != b.text().safe)
      return add_sequences(runtime, escaped(runtime, a), escaped(runtime, b));
    return runtime.string(joined({a.string(), b.string()}), safe);
  }
  std::vector<Value> out = a.list().items;
  out.insert(out.end(), b.list().items.begin(), b.list().items.end());
  return runtime.list(std::move(out), a.list().kind);
}

[[noreturn]] void fail_operands(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (op == Operator::kAdd && repeats(a))
    runtime.fail("can only concatenate " + std::string(type_name(a)) + " (not \"" +
                 std::string(type_name(b)) + "\") to " + std::string(type_name(a)));
  runtime.fail("unsupported operand type(s) for " + std::string(spelling(op)) + ": " +
               quoted_type(a) + " and " + quoted_type(b));
}

bool is_large(const Value& value) { return value.is(Kind::kLargeInt); }

/// The order of two numbers, one of them a large integer; none where the other is a NaN.
std::partial_ordering compare_large(const Value& a, const Value& b) {
  if (!is_large(a)) return 0 <=> compare_large(b, a);
  const std::string& digits = a.large_integer().digits;
  const bool negative = digits.starts_with('-');
  const auto outside = negative ? std::partial_ordering::less : std::partial_ordering::greater;
  std::string other;
  if (is_large(b)) {
    other = b.large_integer().digits;
  } else {
    if (b.is_integer()) return outside;
    const double number = b.number();
    if (std::isnan(number)) return std::partial_ordering::unordered;
    if (std::isinf(number)) return 0 <=> number;
    if (std::abs(number) < 0x1p63) return outside;
    char buffer[512];  // so large a float is an integer of at most 309 digits
    const auto end =
        std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed, 0);
    other.assign(buffer, end.ptr);
  }
  if (negative != other.starts_with('-')) return outside;
  const auto longer = digits.size() <=> other.size();
  const std::partial_ordering size = longer != 0 ? longer : digits.compare(other) <=> 0;
  return negative ? 0 <=> size : size;
}

}  // namespace

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kLargeInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return value.is_generator()                    ? "generator"
             : value.list().kind == ListKind::kTuple ? "tuple"
                                                     : "list";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kMethod:
      return "method";
    case Kind::kMacro:
      return "Macro";
  }
  return "";
}

void require_defined(Runtime& runtime, const Value& value) {
  if (!value.is(Kind::kUndefined)) return;
  runtime.fail(value.why_undefined() ? *value.why_undefined() : "the value is undefined");
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.number() != 0;
    case Kind::kString:
      return !value.string().empty();
    case Kind::kList:
      return value.is_generator() || !value.list().items.empty();
    case Kind::kDict:
      return !value.dict().entries.empty();
    default:
      return true;
  }
}

bool equal(Runtime& runtime, const Value& a, const Value& b) {
  runtime.step();
  if (a.is_number() && b.is_number() && (is_large(a) || is_large(b)))
    return compare_large(a, b) == 0;
  if (a.is_number() && b.is_number())
    return a.is_integer() && b.is_integer() ? a.integer() == b.integer() : a.number() == b.number();
  if (a.kind() != b.kind()) return false;
  if (a.is(Kind::kString)) {
    runtime.read(std::min(a.string().size(), b.string().size()));
    return a.string() == b.string();
  }
  if (a.is(Kind::kList)) return equal_lists(runtime, a.list(), b.list());
  if (a.is(Kind::kDict)) return equal_dicts(runtime, a.dict(), b.dict());
  return a.same_object(b);
}

bool less(Runtime& runtime, const Value& a, const Value& b, std::string_view op) {
  runtime.step();
  require_defined(runtime, a);
  require_defined(runtime, b);
  if (a.is_integer() && b.is_integer()) return a.integer() < b.integer();
  if (a.is_number() && b.is_number() && (is_large(a) || is_large(b)))
    return compare_large(a, b) < 0;
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.is(Kind::kString) && b.is(Kind::kString)) {
    runtime.read(std::min(a.string().size(), b.string().size()));
    return a.string() < b.string();  // bytes of UTF-8 have the characters' order
  }
  if (repeats(a) && repeats(b) && a.kind() == b.kind() && a.list().kind == b.list().kind) {
    const auto &x = a.list().items, &y = b.list().items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(runtime, x[i], y[i])) return less(runtime, x[i], y[i], op);
    return x.size() < y.size();
  }
  const bool swapped = op[0] == '>';  // the caller asks whether a > b as whether b < a
  runtime.fail(joined({"'", op, "' not supported between instances of ",
                       quoted_type(swapped ? b : a), " and ", quoted_type(swapped ? a : b)}));
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is(Kind::kString))
        runtime.fail("'in <string>' requires string as left operand, not " +
                     std::string(type_name(item)));
      runtime.read(container.string().size());
      return find_text(container.string(), item.string()) != std::string_view::npos;
    case Kind::kDict:
      return container.dict().find(runtime, item) != nullptr;
    case Kind::kList:
    case Kind::kUndefined: {
      const auto items = iterate(runtime, container);
      return std::any_of(items.begin(), items.end(),
                         [&](const Value& other) { return equal(runtime, other, item); });
    }
    default:
      runtime.fail("argument of type " + quoted_type(container) + " is not iterable");
  }
}

Value arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (op == Operator::kModulo && a.is(Kind::kString)) return percent_format(runtime, a, b);
  require_defined(runtime, a);
  require_defined(runtime, b);
  if (a.is_number() && b.is_number() && (is_large(a) || is_large(b)))
    runtime.fail("'" + std::string(spelling(op)) + "' is of integers of at most 63 bits");
  if (a.is_number() && b.is_number()) return numbers(runtime, op, a, b);
  if (op == Operator::kMultiply && repeats(a) && b.is_integer())
    return repeat(runtime, a, b.integer());
  if (op == Operator::kMultiply && repeats(b) && a.is_integer())
    return repeat(runtime, b, a.integer());
  const bool alike =
      repeats(a) && a.kind() == b.kind() && (a.is(Kind::kString) || a.list().kind == b.list().kind);
  if (op == Operator::kAdd && alike) return add_sequences(runtime, a, b);
  fail_operands(runtime, op, a, b);
}

Value sign(Runtime& runtime, Operator op, const Value& value) {
  require_defined(runtime, value);
  if (!value.is_number())
    runtime.fail("bad operand type for unary " + std::string(op == Operator::kPlus ? "+" : "-") +
                 ": " + quoted_type(value));
  if (is_large(value)) {
    if (op == Operator::kPlus) return value;
    runtime.fail("'-' is of integers of at most 63 bits");
  }
  if (value.is(Kind::kFloat))
    return Value(op == Operator::kPlus ? value.number() : -value.number());
  if (op == Operator::kPlus) return Value(value.integer());
  return integer_arithmetic(runtime, Operator::kSubtract, 0, value.integer());
}

bool compare(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::kEqual:
      return equal(runtime, a, b);
    case Operator::kNotEqual:
      return !equal(runtime, a, b);
    case Operator::kIn:
      return contains(runtime, b, a);
    case Operator::kNotIn:
      return !contains(runtime, b, a);
    case Operator::kLess:
      return less(runtime, a, b);
    case Operator::kLessEqual:
      return less(runtime, a, b, "<=") || equal(runtime, a, b);
    case Operator::kGreater:
      return less(runtime, b, a, ">");
    default:
      return less(runtime, b, a, ">=") || equal(runtime, a, b);
  }
}

}  // namespace canopy::jinja
