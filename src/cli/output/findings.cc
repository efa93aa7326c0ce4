#include "src/cli/output/findings.h"

#include <iostream>
#include <utility>

#include "src/cli/output/table.h"

namespace canopy::cli {

using nlohmann::json;

std::string gigabytes_per_second(double rate) { return fixed(rate / 1e9, 2) + " GB/s"; }

json findings_json(const std::vector<Finding>& findings) {
  json out = json::array();
  for (const Finding& f : findings)
    out.push_back({{"name", f.name},
                   {"value", f.value},
                   {"ok", f.fix.empty()},
                   {"fix", f.fix.empty() ? json() : json(f.fix)}});
  return out;
}

void print_findings(const std::vector<Finding>& findings) {
  const Table table(
      {{"", 2, Align::kLeft, ""}, {"", 15, Align::kLeft, ""}, {"", 0, Align::kLeft, " "}});
  std::string fixes;
  for (const Finding& f : findings) {
    std::cout << table.row({f.fix.empty() ? "" : "!", f.name, f.text});
    if (!f.fix.empty()) fixes += "  " + f.name + ": " + f.fix + "\n";
  }
  std::cout << (fixes.empty() ? "\nNothing stands in the way.\n" : "\nTo mend:\n" + fixes);
}

}  // namespace canopy::cli
