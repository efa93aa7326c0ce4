#include "planner/shape_text.h"

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/json.h"

namespace canopy {
namespace {

/// Numbers with just this text between them; nothing if the text is not that.
std::optional<std::vector<int>> numbers(std::string_view text, std::string_view between) {
  std::vector<int> values;
  const char *at = text.data(), *const end = at + text.size();
  while (true) {
    const auto [stop, error] = std::from_chars(at, end, values.emplace_back());
    if (error != std::errc() || *at == '-') return std::nullopt;
    if (stop == end) return values;
    if (!std::string_view(stop, end).starts_with(between)) return std::nullopt;
    at = stop + between.size();
  }
}

}  // namespace

std::optional<TreeShape> parse_shape(std::string_view text) {
  if (const auto kl = numbers(text, "x"); kl && kl->size() == 2)
    return TreeShape::sequences(kl->front(), kl->back());
  if (const auto kn = numbers(text, "-ary:"); kn && kn->size() == 2)
    return TreeShape::k_ary(kn->front(), kn->back());
  if (const auto children = numbers(text, ",")) return TreeShape::branching(*children);
  return std::nullopt;
}

TreeShape shape_from_json(std::string_view json) {
  const nlohmann::json parsed = parse_json(json);
  const auto list = parsed.is_object() ? parsed.value("parents", nlohmann::json()) : parsed;
  require(list.is_array(),
          "tree shape: write an array of parents, [-1, 0, 0, 1], or {\"parents\": [...]}");
  std::vector<NodeId> parents;
  for (const auto &entry : list) {
    const bool fits = entry.is_number_integer() && entry.get<double>() >= -1 &&
                      entry.get<double>() <= std::numeric_limits<NodeId>::max();
    if (!fits)
      throw Error("tree shape: the parent of node " + std::to_string(parents.size()) +
                  " is not a node's number");
    parents.push_back(entry.get<NodeId>());
  }
  return TreeShape::from_parents(std::move(parents));
}

}  // namespace canopy
