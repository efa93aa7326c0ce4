// The tests that may follow `is`.
#include <array>

#include "src/base/utf8.h"
#include "src/jinja/characters.h"
#include "src/jinja/functions/arguments.h"
#include "src/jinja/functions/filters.h"
#include "src/jinja/operators.h"

namespace canopy::jinja {

namespace {

/// A test of the value alone.
template <bool (*holds)(const Value&)>
bool of_value(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  Parameters(runtime, "the test", arguments, {});
  return holds(subject);
}

bool defined(const Value& v) { return !v.is(Kind::kUndefined); }
bool undefined(const Value& v) { return v.is(Kind::kUndefined); }
bool none(const Value& v) { return v.is(Kind::kNone); }
bool boolean(const Value& v) { return v.is(Kind::kBool); }
bool true_(const Value& v) { return v.is(Kind::kBool) && v.boolean(); }
bool false_(const Value& v) { return v.is(Kind::kBool) && !v.boolean(); }
bool integer(const Value& v) { return v.is(Kind::kInt) || v.is(Kind::kLargeInt); }
bool float_(const Value& v) { return v.is(Kind::kFloat); }
bool number(const Value& v) { return v.is_number(); }
bool string(const Value& v) { return v.is(Kind::kString); }
bool mapping(const Value& v) { return v.is(Kind::kDict); }
bool iterable(const Value& v) {
  return v.is(Kind::kUndefined) || v.is(Kind::kString) || v.is(Kind::kList) || v.is(Kind::kDict) ||
         v.is(Kind::kLoop);
}
bool sequence(const Value& v) { return iterable(v) && !v.is_generator() && !v.is(Kind::kLoop); }
bool callable(const Value& v) {  // an undefined value has the method, which then fails
  return v.is(Kind::kMethod) || v.is(Kind::kMacro) || v.is(Kind::kUndefined);
}

/// True if the value is a string with letters, and `change` leaves it as it is.
template <std::string (*change)(std::string_view)>
bool is_case(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  Parameters(runtime, "the test", arguments, {});
  if (!subject.is(Kind::kString)) return false;
  runtime.walk(subject.string().size());
  return change(subject.string()) == subject.string() &&
         to_upper(subject.string()) != to_lower(subject.string());
}

std::int64_t remainder(Runtime& runtime, const Value& value, const Value& by) {
  const Value rest = arithmetic(runtime, Operator::kModulo, value, by);
  if (!rest.is(Kind::kInt))
    runtime.fail("the test is of int, not of " + std::string(type_name(value)));
  return rest.integer();
}

bool odd(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  Parameters(runtime, "odd", arguments, {});
  return remainder(runtime, subject, Value(std::int64_t{2})) == 1;
}
bool even(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  Parameters(runtime, "even", arguments, {});
  return remainder(runtime, subject, Value(std::int64_t{2})) == 0;
}
bool divisibleby(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters given(runtime, "divisibleby", arguments, {"num"});
  return remainder(runtime, subject, given.require(0)) == 0;
}

bool sameas(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  return subject.same_object(Parameters(runtime, "sameas", arguments, {"other"}).require(0));
}

template <Operator op>
bool compared(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  return compare(runtime, op, subject,
                 Parameters(runtime, "the test", arguments, {"other"}).require(0));
}

bool filter(Runtime&, const Value& subject, const Arguments&) {
  return subject.is(Kind::kString) && has_filter(subject.string());
}
bool test(Runtime&, const Value& subject, const Arguments&) {
  return subject.is(Kind::kString) && has_test(subject.string());
}

constexpr std::array kTests{
    Test{"defined", of_value<defined>},
    Test{"undefined", of_value<undefined>},
    Test{"none", of_value<none>},
    Test{"boolean", of_value<boolean>},
    Test{"true", of_value<true_>},
    Test{"false", of_value<false_>},
    Test{"integer", of_value<integer>},
    Test{"float", of_value<float_>},
    Test{"number", of_value<number>},
    Test{"string", of_value<string>},
    Test{"mapping", of_value<mapping>},
    Test{"iterable", of_value<iterable>},
    Test{"sequence", of_value<sequence>},
    Test{"callable", of_value<callable>},
    Test{"lower", is_case<to_lower>},
    Test{"upper", is_case<to_upper>},
    Test{"odd", odd},
    Test{"even", even},
    Test{"divisibleby", divisibleby},
    Test{"sameas", sameas},
    Test{"in", compared<Operator::kIn>},
    Test{"eq", compared<Operator::kEqual>},
    Test{"equalto", compared<Operator::kEqual>},
    Test{"==", compared<Operator::kEqual>},
    Test{"ne", compared<Operator::kNotEqual>},
    Test{"!=", compared<Operator::kNotEqual>},
    Test{"lt", compared<Operator::kLess>},
    Test{"lessthan", compared<Operator::kLess>},
    Test{"<", compared<Operator::kLess>},
    Test{"le", compared<Operator::kLessEqual>},
    Test{"<=", compared<Operator::kLessEqual>},
    Test{"gt", compared<Operator::kGreater>},
    Test{"greaterthan", compared<Operator::kGreater>},
    Test{">", compared<Operator::kGreater>},
    Test{"ge", compared<Operator::kGreaterEqual>},
    Test{">=", compared<Operator::kGreaterEqual>},
    Test{"filter", filter},
    Test{"test", test},
};

}  // namespace

bool has_test(std::string_view name) {
  for (const Test& test : kTests)
    if (test.name == name) return true;
  return false;
}

bool apply_test(Runtime& runtime, std::string_view name, const Value& subject,
                const Arguments& arguments) {
  for (const Test& test : kTests)
    if (test.name == name) return test.holds(runtime, subject, arguments);
  runtime.fail("No test named " + in_quotes(name) + ".");
}

}  // namespace canopy::jinja
