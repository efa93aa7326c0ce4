#pragma once
#include <compare>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace canopy::grammar {

/// A decimal number without an exponent, exactly.
struct Decimal {
  bool negative = false;    // not of zero
  std::string whole = "0";  // no zeros in front but a single one
  std::string fraction;     // no zeros at its end

  bool operator==(const Decimal&) const = default;
  std::strong_ordering operator<=>(const Decimal& other) const;
};

/// The number as it was written; of a double, the shortest decimal that reads back as it.
Decimal to_decimal(const nlohmann::ordered_json& number);

/// One end of a range of numbers.
struct Bound {
  Decimal value;
  bool included = true;
};

struct Range {
  std::optional<Bound> least, most;
  bool empty() const;
};

}  // namespace canopy::grammar
