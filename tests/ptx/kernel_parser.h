#pragma once
// Reads one kernel of a file of PTX.
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/ptx/program.h"

namespace canopy::ptx {

/// A declaration such as `.shared .align 4 .b8 name[128] = {1, 2}`. Elements are bytes.
struct ArrayOfText {
  explicit ArrayOfText(std::string_view declaration);
  std::string name;
  std::size_t bytes = 0, align = 1;
  std::vector<std::uint8_t> values;
};

class KernelParser {
 public:
  KernelParser(const Module& module, std::string name, int first_line);
  /// Throws Error naming the line that is not understood.
  std::unique_ptr<Kernel> parse(std::string_view text);

 private:
  struct Statement {
    std::string text;
    int line;
  };
  /// The opcode, cut at its dots, and its operands.
  struct Parts {
    std::string opcode;
    std::vector<std::string> name, operands;
    bool has(std::string_view part) const;
    const std::string& operand(std::size_t index) const;
  };

  static std::vector<Statement> statements(std::string_view text, int line);
  static Parts parts_of(const std::string& text);
  void read_head(std::string_view head);
  void place_shared(std::string_view text, const std::vector<Statement>& statements);
  void declare_registers(const std::string& declaration);
  Register add_register(std::uint8_t width);
  Register constant(std::uint64_t value, std::uint8_t width);

  void read_instruction(Statement statement);
  void read_compute(Insn& insn, const Parts& parts);
  void read_memory(Insn& insn, const Parts& parts);
  void read_exchange(Insn& insn, const Parts& parts);
  bool read_move_of_parts(Insn& insn, const Parts& parts);
  std::pair<Register, std::int64_t> address(const std::string& text);
  std::vector<Register> vector(const std::string& text, std::uint8_t width_of_constants);
  /// A register, or a constant of that width.
  Register source(const std::string& text, std::uint8_t width);
  Register known_register(const std::string& text);

  const Module& module_;
  std::unique_ptr<Kernel> kernel_ = std::make_unique<Kernel>();
  std::map<std::string, Register> registers_;
  std::map<std::string, std::uint64_t> symbols_;  // addresses within their spaces
  std::map<std::string, std::uint32_t> labels_;
  std::vector<std::pair<std::size_t, std::string>> branches_;  // to labels, resolved at the end
  std::map<std::pair<std::uint64_t, std::uint8_t>, Register> constants_;
  int line_;
};

}  // namespace canopy::ptx
