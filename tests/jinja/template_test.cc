// Errors, limits and what Python's Jinja cannot be asked for.
#include "src/jinja/template.h"

#include <gtest/gtest.h>

#include <thread>

#include "src/base/json.h"

namespace canopy::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::string render(std::string_view source, const Json& variables = Json::object(),
                   const Limits& limits = {}) {
  return Template(source).render(variables, std::tm{}, limits);
}

struct Failed {
  std::string message;
  int line = 0, column = 0;
};

Failed failure(std::string_view source, const Json& variables = Json::object(),
               const Limits& limits = {}) {
  try {
    const std::string text = render(source, variables, limits);
    ADD_FAILURE() << "no error, but " << text.size() << " bytes: " << text.substr(0, 100);
  } catch (const TemplateError& e) {
    return {e.message(), e.line(), e.column()};
  }
  return {};
}

std::string repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(TemplateErrors, SayLineAndColumn) {
  const auto expect = [](std::string_view source, int line, int column, std::string_view message) {
    SCOPED_TRACE(source);
    const Failed failed = failure(source, {{"x", 1}});
    EXPECT_EQ(failed.line, line);
    EXPECT_EQ(failed.column, column);
    EXPECT_NE(failed.message.find(message), std::string::npos) << failed.message;
  };
  expect("{{ x", 1, 1, "the tag has no end '}}'");
  expect("a\r\nb\n  {% if x %}", 3, 13, "expected '{% endif %}', found the end of the template");
  expect("é森{{ x + }}", 1, 10, "expected a value, found '}}'");
  expect("{{ x +\n 'a' }}", 1, 6, "unsupported operand type(s) for +: 'int' and 'str'");
  expect("\n{{ y.z }}", 2, 5, "'y' is undefined");
  expect("{% for a in [1] %}\n {{ raise_exception('own words') }}\n{% endfor %}", 2, 20,
         "own words");
  expect("{% macro m(a) %}\n{{ a.b.c }}{% endmacro %}{{ m(1) }}", 2, 7,
         "'int object' has no attribute 'b'");
  expect("{{ x|nosuch }}", 1, 5, "No filter named 'nosuch'.");
  expect("{% include 'x' %}", 1, 4, "the statement 'include' is not supported; known: if, for");
  expect("{% for i in x recursive %}{% endfor %}", 1, 15, "recursive loops are not supported");
  expect("{{ f(*x, *x) }}", 1, 10, "only one argument may have this '*'");
  expect("{{ 99999999999999999999 }}", 1, 4, "the integer does not fit 63 bits");
  expect("{{ '\\ud800' }}", 1, 7, "the escape in the string is no character");
}

TEST(TemplateErrors, HaveTheTemplatesOwnMessageAloneAndThePlaceInWhat) {
  try {
    render("{{ raise_exception('Roles must alternate') }}");
    FAIL();
  } catch (const Error& e) {
    const auto& error = dynamic_cast<const TemplateError&>(e);
    EXPECT_EQ(error.message(), "Roles must alternate");
    EXPECT_EQ(std::string(error.what()).find("Roles must alternate, at line 1, column 19"), 0u);
  }
}

TEST(TemplateErrors, RefuseSourcesThatAreNotUtf8OrTooLong) {
  EXPECT_EQ(failure("\xff").message, "the template is not UTF-8");
  EXPECT_EQ(failure(std::string(kMostSourceBytes + 1, 'x')).message,
            "the template has 262145 bytes; the limit is 262144");
  EXPECT_EQ(render(std::string(kMostSourceBytes, 'x')).size(), kMostSourceBytes);
}

TEST(TemplateLimits, EndEndlessLoops) {
  const char* const loops[] = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% set n = namespace(s='x') %}{% for a in range(100000) %}{% for b in range(100000) %}"
      "{% set n.s = n.s[:1] + 'x' %}{% endfor %}{% endfor %}",
      "{% set s = 'a' * 1000000 %}{% for a in range(100000) %}{% if 'b' in s %}{% endif %}"
      "{% endfor %}",
      "{% set s = 'a' * 1000000 %}{% for a in range(100000) %}{{ s.replace('a', '') }}{% endfor %}",
      "{% set l = [0] * 1000000 %}{% for a in range(100000) %}{{ 1 in l }}{% endfor %}",
      "{% set s = 'a' * 1000000 %}{% for a in range(100000) %}{% set t = s|tojson %}{% endfor %}",
      "{% set s = '<' * 1000000 %}{% for a in range(100000) %}{% set t = [s]|string %}{% endfor %}",
      "{% set s = ' ' * 1000000 %}{% for a in range(100000) %}{% set t = s|trim %}{% endfor %}",
      "{% set l = [0] * 1000000 %}{% for a in range(100000) %}{% set m = l[::-1] %}{% endfor %}",
  };
  for (const char* source : loops) {
    SCOPED_TRACE(source);
    EXPECT_EQ(failure(source, {}, {.steps = 300'000}).message,
              "the template takes more than 300000 steps; an endless loop?");
  }
}

TEST(TemplateLimits, BoundTheTextThatIsMade) {
  EXPECT_EQ(
      failure("{% set s = 'x' * 1000000 %}{% for i in range(1000) %}{{ s }}{% endfor %}").message,
      "the template makes more than 33554432 bytes of text");
  EXPECT_EQ(
      failure("{% for i in range(11) %}{{ i }}{% endfor %}", {}, {.output_bytes = 11}).message,
      "the template makes more than 11 bytes of text");
  EXPECT_EQ(render("{% for i in range(10) %}{{ i }}{% endfor %}", {}, {.output_bytes = 10}),
            "0123456789");
}

TEST(TemplateLimits, BoundTheMemoryThatIsHeld) {
  const char* const hogs[] = {
      "{{ ('x' * 1000000000000000)|length }}",
      "{{ 9223372036854775807 * 'xyz' }}",
      "{{ ([1] * 1000000000000000)|length }}",
      "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}",
      "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
      "{% set n = namespace(l=['x']) %}{% for i in range(60) %}{% set n.l = n.l + n.l %}{% endfor "
      "%}",
      "{% set n = namespace(l=['x']) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}"
      "{% endfor %}{{ n.l|tojson|length }}",
      "{% set n = namespace(l=['x']) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}"
      "{% endfor %}{{ n.l|string|length }}",
      "{% set n = namespace(s='a' * 1000000) %}{% set n.s = n.s.replace('a', n.s) %}",
      "{% set s = 'a' * 1000000 %}{{ s|list|length }}",
      "{{ 'a\n'|indent(1000000000000) }}",
      "{{ [1]|tojson(indent=1000000000000) }}",
      "{{ 'a'.ljust(1000000000000) }}",
      "{% set x %}{% for i in range(100000) %}{{ 'x' * 10000 }}{% endfor %}{% endset %}",
      "{% macro m() %}{{ 'x' * 1000000 }}{% endmacro %}{{ m() }}{% set n = namespace(l=[]) %}"
      "{% for i in range(1000) %}{% set n.l = n.l + [m()] %}{% endfor %}",
      "{% for i in range(100000) %}{% for j in range(100000) %}{% set n = namespace(a=1, b=2) %}"
      "{% endfor %}{% endfor %}",
  };
  for (const char* source : hogs) {
    SCOPED_TRACE(source);
    EXPECT_NE(
        failure(source, {}, {.memory_bytes = 4u << 20}).message.find("more than 4 MiB of memory"),
        std::string::npos);
  }
  // Memory that is let go does not count.
  EXPECT_EQ(render("{% for i in range(1000) %}{% set s = 'x' * 100000 %}{% endfor %}{{ s }}", {},
                   {.memory_bytes = 4u << 20}),
            "");
}

TEST(TemplateLimits, BoundNestingInTheSource) {
  const auto nested = [](std::string_view open, std::string_view middle, std::string_view close,
                         int times) {
    return repeated(open, times) + std::string(middle) + repeated(close, times);
  };
  for (const int times : {200, 20000}) {
    const std::string sources[] = {
        "{{ " + nested("(", "1", ")", times) + " }}",
        "{{ " + nested("[", "1", "]", times) + " }}",
        "{{ " + nested("{'a': ", "1", "}", times) + " }}",
        "{{ " + repeated("-", times) + "1 }}",
        "{{ " + repeated("not ", times) + "1 }}",
        "{{ " + repeated("1 if 1 else ", times) + "1 }}",
        "{{ " + nested("f(", "1", ")", times) + " }}",
        "{{ " + nested("a[", "1", "]", times) + " }}",
        "{% for " + nested("(", "a", ")", times) + " in [] %}{% endfor %}",
        nested("{% if 1 %}", "", "{% endif %}", std::min(times, 10000)),
    };
    for (const std::string& source : sources) {
      SCOPED_TRACE(source.substr(0, 40));
      EXPECT_EQ(failure(source).message, "the template is nested deeper than 100 levels");
    }
  }
  for (const int times : {501, 20000}) {
    const std::string chains[] = {"{{ 1" + repeated(" + 1", times) + " }}",
                                  "{{ a" + repeated(".a", times) + " }}",
                                  "{{ a" + repeated("[0]", times) + " }}",
                                  "{{ 1" + repeated("|int", times) + " }}",
                                  "{{ 1" + repeated(" * 1", times) + " }}",
                                  "{{ 1" + repeated(" or 1", times) + " }}",
                                  "{{ 1" + repeated(" and 1", times) + " }}",
                                  "{{ 1" + repeated(" if 1", times) + " }}",
                                  "{{ 1" + repeated(" < 1", times) + " }}",
                                  "{{ 1" + repeated(" ** 1", times) + " }}",
                                  "{{ a" + repeated("()", times) + " }}",
                                  "{% set x | trim" + repeated("|trim", times) + " %}{% endset %}"};
    for (const std::string& source : chains) {
      SCOPED_TRACE(source.substr(0, 40));
      EXPECT_EQ(failure(source).message, "the expression has more than 500 parts");
    }
  }
}

TEST(TemplateLimits, TakeWhatIsJustBelowThem) {
  // On a thread's stack, as a server has it.
  std::thread([] {
    EXPECT_EQ(render("{{ 0" + repeated(" + 1", 499) + " }}"), "499");
    EXPECT_EQ(render(repeated("{% if 1 %}", 98) + "x" + repeated("{% endif %}", 98)), "x");
    EXPECT_EQ(render("{% macro m(n) %}{% if n %}{{ n }}{{ m(n - 1) }}{% endif %}{% endmacro %}"
                     "{{ m(100)|length }}"),
              "192");
  }).join();
}

TEST(TemplateLimits, EndRecursionOfMacros) {
  const char* const recursions[] = {
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
      "{% macro m(x=m()) %}{% endmacro %}{{ m() }}",
      "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
  };
  for (const char* source : recursions) {
    SCOPED_TRACE(source);
    EXPECT_NE(failure(source).message.find("evaluation is nested deeper than 1000 levels"),
              std::string::npos);
  }
}

TEST(TemplateLimits, BoundTheDepthOfValues) {
  const char* const chains[] = {
      "{% set n = namespace(l=[]) %}{% for i in range(100000) %}{% set n.l = [n.l] %}{% endfor %}",
      "{% set n = namespace(l={}) %}{% for i in range(100000) %}{% set n.l = {'a': n.l} %}"
      "{% endfor %}",
      "{% set n = namespace(l={}) %}{% for i in range(100000) %}{% set n.l = {'a': n.l.items} %}"
      "{% endfor %}",
      "{% set n = namespace(l=0) %}{% for i in range(100000) %}{% for j in [n.l] %}"
      "{% set n.l = loop %}{% endfor %}{% endfor %}",
  };
  for (const char* source : chains) {
    SCOPED_TRACE(source);
    EXPECT_EQ(failure(source).message,
              "lists and dicts lie more than 100 levels inside each other");
  }
  Json deep = 1;
  for (int i = 0; i < 101; ++i) deep = Json::array({deep});
  EXPECT_EQ(failure("", {{"deep", deep}}).message, "a variable has more than 100 levels");
}

TEST(TemplateLimits, KeepWhatRefersToItself) {
  // Leaks would show in the sanitizers' builds.
  EXPECT_EQ(render("{% set n = namespace() %}{% set n.n = n %}{% macro m() %}{{ m is callable }}"
                   "{% endmacro %}{% set n.m = m %}{{ n.n.n.m() }}"),
            "True");
}

TEST(TemplateLimits, BoundFormatsOfTime) {
  EXPECT_EQ(failure("{{ strftime_now('%d' * 1000) }}").message,
            "strftime_now(): the format gives nothing, or more than 1 KiB");
  EXPECT_EQ(failure("{{ strftime_now('%999999999d') }}").message,
            "strftime_now(): the format gives nothing, or more than 1 KiB");
}

TEST(Template, SearchesHostileTextsInLinearTime) {
  // A search that compares at each place would take 10^12 steps of the machine's.
  EXPECT_EQ(render("{% set a = 'a' * 2000000 %}{% set b = 'a' * 1000000 ~ 'b' %}{{ b in a }}"
                   "{{ a.find(b) }}{{ a.rfind('b' ~ b) }}{{ a.split(b)|length }}"),
            "False-1-11");
}

TEST(Template, RepairsTextsThatAreNotUtf8) {
  EXPECT_EQ(render("{{ x }}|{{ x|length }}", {{"x", "a\xff"}}), "a\uFFFD|2");
}

/// Texts are what Python's Jinja makes of the same.
TEST(Template, PrintsAndComparesIntegersOfAnySize) {
  const Json variables = parse_ordered_json(
      R"({"x": 18446744073709551615, "y": -9223372036854775809, "i": 9223372036854775807,
          "z": 1000000000000000000000000000000, "f": 1.8446744073709552e19})",
      LargeIntegers::kKept);
  const auto expect = [&](std::string_view source, std::string_view text) {
    EXPECT_EQ(render(source, variables), text) << source;
  };
  expect("{{ x }} {{ y }} {{ z }} {{ i }} {{ [x, {'a': y}] }}",
         "18446744073709551615 -9223372036854775809 1000000000000000000000000000000 "
         "9223372036854775807 [18446744073709551615, {'a': -9223372036854775809}]");
  expect("{{ {'a': [x, y, z]}|tojson }}",
         R"({"a": [18446744073709551615, -9223372036854775809, 1000000000000000000000000000000]})");
  expect("{{ x == x }}{{ x == z }}{{ x == f }}{{ f > x }}{{ x < f }}{{ i < x }}",
         "TrueFalseFalseTrueTrueTrue");
  expect("{{ y < i }}{{ y < -1e300 }}{{ x > 1.5 }}{{ z > x }}{{ y >= y }}{{ x != 'a' }}",
         "TrueFalseTrueTrueTrueTrue");
  expect("{{ [z, i, y, x]|sort == [y, i, x, z] }} {{ [x, z]|max == z }}", "True True");
  expect("{{ x is number }}{{ x is integer }}{{ x is float }}{{ x is sameas x }}{{ 'a' if x }}",
         "TrueTrueFalseTruea");
  expect("{{ '%d %s' % (x, y) }} {{ '{}'.format(z) }} {{ x|int }} {{ x|string|length }}",
         "18446744073709551615 -9223372036854775809 1000000000000000000000000000000 "
         "18446744073709551615 20");
  expect(
      "{{ x|float }} {{ x ~ 'a' }} {{ +x }} {{ x|round }} {{ '%d' % true }}",
      "1.8446744073709552e+19 18446744073709551615a 18446744073709551615 18446744073709551615 1");
  for (const char* source : {"{{ x + 1 }}", "{{ 2 * y }}", "{{ -x }}", "{{ x % 2 }}"})
    EXPECT_NE(failure(source, variables).message.find("at most 63 bits"), std::string::npos);
}

TEST(Template, RefusesToComputeWithMoreThan63Bits) {
  EXPECT_EQ(failure("{{ 9223372036854775807 + 1 }}").message,
            "the result of '+' needs more than 63 bits");
  EXPECT_EQ(failure("{{ 2 ** 63 }}").message,
            "the result of '** or pow()' needs more than 63 bits");
}

TEST(Template, IsRenderedByManyThreadsAtOnce) {
  const Template shared("{% for i in range(200) %}{{ 'x' ~ i }}{% endfor %}{{ name }}");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&shared, i] {
      const std::string text = shared.render({{"name", i}}, std::tm{});
      EXPECT_TRUE(text.ends_with("x199" + std::to_string(i)));
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace canopy::jinja
