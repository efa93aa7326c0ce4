#include "src/cli/output/table.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "src/base/json_text.h"

namespace canopy::cli {

using nlohmann::json;

namespace {

std::string csv_cell(const json& value) {
  if (value.is_null()) return "";
  const std::string text = value.is_string() ? value.get<std::string>() : json_text(value);
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + "\"";
}

}  // namespace

std::string fixed(double value, int places) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", places, value);
  return text;
}

std::string figure(const json& row, const char* name, int places, double scale) {
  const auto found = row.find(name);
  return found == row.end() || !found->is_number() ? "-"
                                                   : fixed(found->get<double>() * scale, places);
}

std::string Table::head() const {
  std::vector<std::string> heads;
  for (const Column& column : columns_) heads.push_back(column.head);
  return row(heads);
}

std::string Table::row(const std::vector<std::string>& cells) const {
  std::string line;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const Column& column = columns_[i];
    const std::string padding(column.width - std::min(column.width, cells[i].size()), ' ');
    line += column.before;
    line += column.align == Align::kLeft ? cells[i] + padding : padding + cells[i];
  }
  return line + "\n";
}

std::string Table::markdown_head() const {
  std::vector<std::string> heads;
  std::string rule = "|";
  for (const Column& column : columns_) {
    heads.push_back(column.head);
    rule += column.align == Align::kLeft ? "---|" : "--:|";
  }
  return markdown_row(heads) + rule + "\n";
}

std::string Table::markdown_row(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line.append(" ").append(cell).append(" |");
  return line + "\n";
}

std::string csv_table(const std::vector<json>& rows) {
  std::string text;
  const auto add_line = [&](const auto& cell) {
    bool begun = false;
    for (const auto& [name, first] : rows.front().items()) {
      if (first.is_array()) continue;
      if (begun) text += ',';
      text += csv_cell(cell(name));
      begun = true;
    }
    text += "\n";
  };
  add_line([](const std::string& name) { return json(name); });
  for (const json& row : rows) add_line([&](const std::string& name) { return row.at(name); });
  return text;
}

}  // namespace canopy::cli
