#include "src/grammar/schema/decimal.h"

#include <cstdlib>

#include "src/base/json.h"

namespace canopy::grammar {
namespace {

std::strong_ordering compare_sizes(const Decimal& a, const Decimal& b) {
  if (const auto order = a.whole.size() <=> b.whole.size(); order != 0) return order;
  if (const int order = a.whole.compare(b.whole); order != 0) return order <=> 0;
  return a.fraction.compare(b.fraction) <=> 0;  // no zeros at the end: a prefix is less
}

}  // namespace

std::strong_ordering Decimal::operator<=>(const Decimal& other) const {
  if (negative != other.negative) return other.negative <=> negative;
  return negative ? compare_sizes(other, *this) : compare_sizes(*this, other);
}

Decimal to_decimal(const nlohmann::ordered_json& number) {
  std::string text = large_integer(number).value_or(std::string());
  if (text.empty()) text = number.dump();
  Decimal decimal;
  decimal.negative = text.starts_with('-');
  if (decimal.negative) text.erase(0, 1);
  long exponent = 0;
  if (const auto e = text.find('e'); e != std::string::npos) {
    exponent = std::strtol(text.c_str() + e + 1, nullptr, 10);  // at most 324: of a double
    text.erase(e);
  }
  const auto point = std::min(text.find('.'), text.size());
  std::string digits = text;
  if (point < digits.size()) digits.erase(point, 1);
  long whole_digits = static_cast<long>(point) + exponent;
  if (whole_digits < 0) {
    digits.insert(0, static_cast<std::size_t>(-whole_digits), '0');
    whole_digits = 0;
  }
  const auto whole = static_cast<std::size_t>(whole_digits);
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  decimal.fraction = digits.substr(whole);
  decimal.fraction.erase(decimal.fraction.find_last_not_of('0') + 1);
  digits.erase(whole);
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (!digits.empty()) decimal.whole = digits;
  if (decimal.whole == "0" && decimal.fraction.empty()) decimal.negative = false;
  return decimal;
}

bool Range::empty() const {
  if (!least || !most) return false;
  if (least->value == most->value) return !least->included || !most->included;
  return least->value > most->value;
}

}  // namespace canopy::grammar
