// canopy doctor on several machines.
#include "src/cli/commands/doctor_ranks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <numeric>

#include "kernels/arithmetic.h"
#include "src/base/json_text.h"
#include "src/checkpoint/fingerprint.h"
#include "src/cli/output/table.h"
#include "src/cli/version.h"

namespace canopy::cli {

using nlohmann::json;

namespace {

constexpr double kAlike = 1.1;  // rates that differ by less need no shares

json rank_json(const Cluster& cluster, const Checkpoint* model, const std::vector<Finding>& own) {
  json findings = findings_json(own);
  for (std::size_t i = 0; i < own.size(); ++i) findings[i]["text"] = own[i].text;
  const auto disk = std::ranges::find(own, "disk, read", &Finding::name);
  const bool measured = disk != own.end() && disk->value.is_object();
  return {{"host", cluster.host(cluster.share().rank)},
          {"program", version_line()},
          {"instruction_set", cpu_arithmetic()},
          {"model", model ? json(fingerprint(*model)) : json()},
          {"disk", measured ? disk->value["bytes_per_second"] : json()},
          {"latency", cluster.speed().latency.count()},
          {"network", cluster.speed().bytes_per_second},
          {"findings", std::move(findings)}};
}

/// A property that all need alike. `fix`: where one differs.
Finding alike(const Cluster& cluster, const std::vector<json>& ranks, const std::string& name,
              const std::string& key, const std::string& fix) {
  const auto text_of = [&](const json& rank) {
    return rank[key].is_null() ? "none" : rank[key].get<std::string>();
  };
  const std::string first = text_of(ranks[0]);
  Finding found{name, first + " on all", json::array(), ""};
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    found.value.push_back(ranks[i][key]);
    if (text_of(ranks[i]) == first || !found.fix.empty()) continue;
    found.text = first + " on " + cluster.name(0) + ", " + text_of(ranks[i]) + " on " +
                 cluster.name(static_cast<int>(i));
    found.fix = fix;
  }
  return found;
}

/// "2:1", of rates: tenths of the slowest, in lowest terms.
std::string shares_of(const std::vector<double>& rates) {
  constexpr double kTenths = 10;
  const double slowest = *std::ranges::min_element(rates);
  std::vector<long> parts;
  for (const double rate : rates) parts.push_back(std::lround(kTenths * rate / slowest));
  const long common = std::reduce(parts.begin(), parts.end(), parts[0], std::gcd<long, long>);
  std::string text;
  for (const long part : parts) {
    if (!text.empty()) text += ':';
    text += std::to_string(part / common);
  }
  return text;
}

/// A rate of each rank, all measured at once, and the slowest by name.
Finding by_rank(const Cluster& cluster, const std::vector<double>& rates, const std::string& name) {
  Finding found{name, "", {{"bytes_per_second", rates}}, ""};
  for (std::size_t i = 0; i < rates.size(); ++i)
    found.text += (i == 0 ? "" : ", ") + gigabytes_per_second(rates[i]) + " on " +
                  cluster.name(static_cast<int>(i));
  const auto slowest = static_cast<int>(std::ranges::min_element(rates) - rates.begin());
  found.value["slowest"] = slowest;
  if (*std::ranges::max_element(rates) > kAlike * rates[static_cast<std::size_t>(slowest)])
    found.text += "; the slowest is " + cluster.name(slowest);
  return found;
}

std::vector<double> numbers(const std::vector<json>& ranks, const std::string& key) {
  std::vector<double> all;
  for (const json& rank : ranks)
    if (rank[key].is_number()) all.push_back(rank[key].get<double>());
  return all;
}

/// The speeds of disks and network, as far as they were measured.
std::vector<Finding> speeds(const Cluster& cluster, const std::vector<json>& ranks) {
  std::vector<Finding> findings;
  if (const auto disks = numbers(ranks, "disk"); disks.size() == ranks.size()) {
    Finding disk = by_rank(cluster, disks, "disks, at once");
    disk.value["shares"] = nullptr;
    if (*std::ranges::max_element(disks) > kAlike * *std::ranges::min_element(disks)) {
      disk.value["shares"] = shares_of(disks);
      disk.text += "; in proportion: --shares " + shares_of(disks);
    }
    findings.push_back(std::move(disk));
  }
  const auto latencies = numbers(ranks, "latency");
  constexpr double kMicrosecond = 1e-6;
  findings.push_back(
      {"latency", fixed(*std::ranges::max_element(latencies) / kMicrosecond, 1) + " us a message",
       latencies, ""});
  findings.push_back(by_rank(cluster, numbers(ranks, "network"), "network, to it"));
  return findings;
}

}  // namespace

void compare_ranks(Cluster& cluster, const Checkpoint* model, const std::vector<Finding>& own,
                   bool as_object) {
  cluster.measure();
  const std::string mine = json_text(rank_json(cluster, model, own));
  std::vector<json> ranks;
  for (const auto& bytes : cluster.collect(std::as_bytes(std::span(mine)))) {
    const auto* const text = reinterpret_cast<const char*>(bytes.data());
    ranks.push_back(json::parse(text, text + bytes.size()));
  }
  if (cluster.share().rank != 0) return;
  std::vector<Finding> together{
      alike(cluster, ranks, "program", "program", "install the same version on all machines"),
      alike(cluster, ranks, "instruction set", "instruction_set",
            "texts of ranks with different ones would not be one process's, so they are refused: "
            "leave a machine out"),
      alike(cluster, ranks, "model", "model", "give all ranks the same model, by -m")};
  for (Finding& speed : speeds(cluster, ranks)) together.push_back(std::move(speed));
  if (as_object) {
    const json object{{"ranks", ranks}, {"together", findings_json(together)}};
    std::cout << json_text(object, 2) << "\n";
    return;
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::vector<Finding> findings;
    for (const json& one : ranks[i]["findings"])
      findings.push_back({one["name"].get<std::string>(), one["text"].get<std::string>(),
                          one["value"], one["fix"].is_null() ? "" : one["fix"].get<std::string>()});
    std::cout << cluster.name(static_cast<int>(i)) << "\n\n";
    print_findings(findings);
    std::cout << "\n";
  }
  std::cout << "all " << ranks.size() << " ranks\n\n";
  print_findings(together);
}

}  // namespace canopy::cli
