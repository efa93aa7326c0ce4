#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace canopy::cli {

/// A property of a machine, in words and as a value. `fix` is empty where nothing is wrong; else
/// the remedy, a command where there is one.
struct Finding {
  std::string name, text;
  nlohmann::json value;
  std::string fix;
};

/// "1.23 GB/s".
std::string gigabytes_per_second(double rate);

/// Members of a JSON object: name, value, if it is in order, the remedy.
nlohmann::json findings_json(const std::vector<Finding>& findings);
/// Prints a table of them, and the remedies after it.
void print_findings(const std::vector<Finding>& findings);

}  // namespace canopy::cli
