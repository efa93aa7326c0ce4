#include "offload/experts/route_trace.h"

#include <nlohmann/json.hpp>
#include <string>

namespace canopy {

namespace {
using nlohmann::json;
}

void RouteTrace::begin(std::span<const int> layers, int experts, int active,
                       std::span<const int> stay) {
  active_ = static_cast<std::size_t>(active);
  const json line{{"layers", std::vector(layers.begin(), layers.end())},
                  {"experts", experts},
                  {"active", active},
                  {"stay", std::vector(stay.begin(), stay.end())}};
  file_.write(line.dump() + "\n");
}

void RouteTrace::routed(int layer, std::span<const std::int32_t> chosen) {
  json rows = json::array();
  for (std::size_t at = 0; at < chosen.size(); at += active_) {
    const auto row = chosen.subspan(at, active_);
    rows.push_back(std::vector(row.begin(), row.end()));
  }
  file_.write(json{{"layer", layer}, {"rows", std::move(rows)}}.dump() + "\n");
}

void RouteTrace::kept(const std::optional<std::vector<std::int32_t>>& rows) {
  file_.write(json{{"kept", rows ? json(*rows) : json()}}.dump() + "\n");
}

void RouteTrace::stay(std::span<const int> quotas) {
  file_.write(json{{"stay", std::vector(quotas.begin(), quotas.end())}}.dump() + "\n");
}

void RouteTrace::abandoned() { file_.write(json{{"abandoned", true}}.dump() + "\n"); }

}  // namespace canopy
