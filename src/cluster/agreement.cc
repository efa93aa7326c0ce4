#include "src/cluster/agreement.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "src/base/error.h"

namespace canopy {

namespace {

/// Names and values, each with a zero after it.
std::vector<std::byte> written(std::span<const SharedFact> facts) {
  std::string text;
  for (const SharedFact& fact : facts) text += fact.name + '\0' + fact.value + '\0';
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::vector<SharedFact> read(std::span<const std::byte> bytes) {
  std::vector<std::string> parts;
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\0'), rest.size() - 1);
    parts.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  std::vector<SharedFact> facts;
  for (std::size_t i = 0; i + 1 < parts.size(); i += 2) facts.push_back({parts[i], parts[i + 1]});
  return facts;
}

/// "missing" where there is no such fact.
std::string value_of(const std::vector<SharedFact>& facts, const std::string& name) {
  const auto fact = std::ranges::find(facts, name, &SharedFact::name);
  return fact == facts.end() ? "missing" : fact->value;
}

}  // namespace

void agree(Cluster& cluster, std::span<const SharedFact> facts) {
  const auto all = cluster.collect(written(facts));
  const std::vector<SharedFact> first = read(all[0]);
  for (int rank = 1; rank < static_cast<int>(all.size()); ++rank) {
    const std::vector<SharedFact> its = read(all[static_cast<std::size_t>(rank)]);
    for (const std::vector<SharedFact>& named : {first, its})
      for (const SharedFact& fact : named) {
        const std::string a = value_of(first, fact.name), b = value_of(its, fact.name);
        if (a != b)
          throw Error("the ranks do not agree: " + fact.name + " is " + a + " on " +
                      cluster.name(0) + " and " + b + " on " + cluster.name(rank) +
                      "; all ranks need the same");
      }
  }
}

}  // namespace canopy
