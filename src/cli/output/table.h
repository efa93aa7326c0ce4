#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace canopy::cli {

/// 12.5 with two places is "12.50".
std::string fixed(double value, int places);
/// The number that a row has by this name, times `scale`; "-" where it has none.
std::string figure(const nlohmann::json& row, const char* name, int places, double scale = 1);

enum class Align : std::uint8_t { kLeft, kRight };
struct Column {
  std::string head;
  std::size_t width = 0;  // at least; characters of ASCII
  Align align = Align::kRight;
  std::string before = " ";  // stands between it and the column to its left
};

/// A table for people. Its rows are lines of their own, so that each can be printed when it is
/// known: one cell for each column.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  std::string head() const;
  std::string row(const std::vector<std::string>& cells) const;
  /// The same in Markdown, whose columns have no width.
  std::string markdown_head() const;
  static std::string markdown_row(const std::vector<std::string>& cells);

 private:
  std::vector<Column> columns_;
};

/// Rows for programs: the first row's names, then a line for each; lists are left out, null is
/// empty, and what has a comma, a quote or a line's end in it is quoted (RFC 4180).
std::string csv_table(const std::vector<nlohmann::json>& rows);

}  // namespace canopy::cli
