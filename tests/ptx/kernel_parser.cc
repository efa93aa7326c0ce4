#include "tests/ptx/kernel_parser.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "src/base/error.h"
#include "tests/ptx/instructions.h"

namespace canopy::ptx {

namespace {

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1));
}

/// Cuts a list, but not inside of brackets.
std::vector<std::string> cut(std::string_view text, char at) {
  std::vector<std::string> pieces;
  std::string piece;
  int depth = 0;
  for (const char c : text) {
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c == at && depth == 0) {
      pieces.push_back(trimmed(piece));
      piece.clear();
    } else {
      piece += c;
    }
  }
  if (!trimmed(piece).empty()) pieces.push_back(trimmed(piece));
  return pieces;
}

/// Bytes of a value of a type such as u32; of a predicate none.
std::uint8_t width_of_type(const std::string& type) {
  if (type == "pred") return 0;
  return static_cast<std::uint8_t>(std::stoi(type.substr(1)) / 8);
}

}  // namespace

ArrayOfText::ArrayOfText(std::string_view declaration) {
  const std::size_t equals = declaration.find('=');
  std::istringstream words{
      std::string(declaration.substr(0, std::min(equals, declaration.find(';'))))};
  for (std::string word; words >> word;) {
    if (word == ".align")
      words >> align;
    else if (!word.starts_with("."))
      name = word;
  }
  if (const std::size_t bracket = name.find('['); bracket != std::string::npos) {
    const std::string count = name.substr(bracket + 1, name.find(']') - bracket - 1);
    bytes = count.empty() ? 0 : std::stoul(count);
    name.resize(bracket);
  }
  if (equals == std::string_view::npos) return;
  const std::size_t open = declaration.find('{'), close = declaration.find('}');
  for (const std::string& value : cut(declaration.substr(open + 1, close - open - 1), ','))
    values.push_back(static_cast<std::uint8_t>(std::stoi(value)));
  values.resize(std::max(bytes, values.size()));
}

bool KernelParser::Parts::has(std::string_view part) const {
  return std::ranges::find(name, part) != name.end();
}
const std::string& KernelParser::Parts::operand(std::size_t index) const {
  if (index >= operands.size()) throw Error("operand " + std::to_string(index) + " is missing");
  return operands[index];
}

KernelParser::KernelParser(const Module& module, std::string name, int first_line)
    : module_(module), line_(first_line) {
  kernel_->name = std::move(name);
}

std::unique_ptr<Kernel> KernelParser::parse(std::string_view text) {
  const std::size_t open = std::min(text.find("\n{"), text.size());
  read_head(text.substr(0, open));
  const auto lines = std::ranges::count(text.substr(0, open), '\n');
  const auto body = statements(text.substr(open), line_ + static_cast<int>(lines));
  kernel_->thread = registers_["%tid.x"] = add_register(4);
  kernel_->block = registers_["%ctaid.x"] = add_register(4);
  kernel_->threads = registers_["%ntid.x"] = add_register(4);
  kernel_->blocks = registers_["%nctaid.x"] = add_register(4);
  kernel_->lane = registers_["%laneid"] = add_register(4);
  place_shared(text.substr(open), body);
  for (const auto& [name, global] : module_.globals())
    symbols_[name] = reinterpret_cast<std::uintptr_t>(global.bytes.data());
  for (const Statement& statement : body) {
    try {
      read_instruction(statement);
    } catch (const std::exception& error) {
      throw Error("PTX: " + kernel_->name + ", line " + std::to_string(statement.line) + ", " +
                  statement.text + ": " + error.what());
    }
  }
  for (const auto& [at, label] : branches_) {
    const auto found = labels_.find(label);
    if (found == labels_.end()) throw Error("PTX: " + kernel_->name + ": no label " + label);
    kernel_->code[at].target = found->second;
  }
  kernel_->traffic.resize(kernel_->code.size());
  return std::move(kernel_);
}

/// The parameter, of which there is one, and the threads of a block.
void KernelParser::read_head(std::string_view head) {
  for (const std::string& line : cut(head, '\n')) {
    if (line.starts_with(".param")) {
      const ArrayOfText parameter(line);
      symbols_[parameter.name] = 0;
      kernel_->parameter_bytes = parameter.bytes;
    } else if (line.starts_with(".maxntid")) {
      kernel_->most_threads = std::stoi(line.substr(8));
    }
  }
}

/// Arrays of the kernel first, then what a launch adds.
void KernelParser::place_shared(std::string_view text, const std::vector<Statement>& statements) {
  std::map<std::string, Module::SharedArray> mentioned;
  for (const auto& [name, array] : module_.shared_)
    if (text.find(name) != std::string_view::npos) mentioned[name] = array;
  for (const Statement& statement : statements)
    if (statement.text.starts_with(".shared")) {
      const ArrayOfText array(statement.text);
      mentioned[array.name] = {array.bytes, array.align};
    }
  std::size_t end = 0;
  constexpr std::size_t kAlign = 16;
  for (const auto& [name, array] : mentioned) {
    if (array.bytes == 0) continue;
    end = (end + array.align - 1) / array.align * array.align;
    symbols_[name] = end;
    end += array.bytes;
  }
  end = (end + kAlign - 1) / kAlign * kAlign;
  for (const auto& [name, array] : mentioned)
    if (array.bytes == 0) symbols_[name] = end;
  kernel_->shared_bytes = end;
}

std::vector<KernelParser::Statement> KernelParser::statements(std::string_view text, int line) {
  std::vector<Statement> all;
  std::string current;
  bool in_vector = false;
  const auto end = [&](const char* with) {
    const std::string statement = trimmed(current);
    if (!statement.empty()) all.push_back({statement + with, line});
    current.clear();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '/' && text.substr(i).starts_with("//")) {
      i = std::min(text.find('\n', i), text.size()) - 1;
      continue;
    }
    if (c == '\n') ++line;
    const bool at_begin = trimmed(current).empty();
    if (c == ';') {
      end("");
    } else if (c == ':' && !in_vector) {
      end(":");
    } else if ((c == '{' || c == '}') && at_begin && !in_vector) {
      continue;  // of a scope, whose names are its own
    } else {
      if (c == '{') in_vector = true;
      if (c == '}') in_vector = false;
      current += c;
    }
  }
  return all;
}

KernelParser::Parts KernelParser::parts_of(const std::string& text) {
  const std::size_t space = std::min(text.find_first_of(" \t"), text.size());
  Parts parts;
  parts.opcode = text.substr(0, space);
  parts.name = cut(parts.opcode, '.');
  parts.operands = cut(std::string_view(text).substr(space), ',');
  return parts;
}

Register KernelParser::add_register(std::uint8_t width) {
  constexpr std::uint32_t kAlign = 32;  // so that compilers' vectors may read them
  const Register added{kernel_->register_bytes, width};
  const std::uint32_t bytes = width == 0 ? sizeof(Lanes) : std::uint32_t{width} * kWarp;
  kernel_->register_bytes += (bytes + kAlign - 1) / kAlign * kAlign;
  return added;
}

Register KernelParser::constant(std::uint64_t value, std::uint8_t width) {
  const auto [found, is_new] = constants_.try_emplace({value, width});
  if (is_new) {
    found->second = add_register(width);
    kernel_->constants.emplace_back(found->second, value);
  }
  return found->second;
}

/// `.reg .b32 %r<7>`, or a single name.
void KernelParser::declare_registers(const std::string& declaration) {
  std::istringstream words(declaration);
  std::string reg, type, name;
  words >> reg >> type >> name;
  const std::uint8_t width = width_of_type(type.substr(1));
  const std::size_t bracket = name.find('<');
  if (bracket == std::string::npos) {
    registers_[name] = add_register(width);
    return;
  }
  const int count = std::stoi(name.substr(bracket + 1));
  for (int i = 0; i < count; ++i)
    registers_[name.substr(0, bracket) + std::to_string(i)] = add_register(width);
}

void KernelParser::read_instruction(Statement statement) {
  std::string text = statement.text;
  if (text.ends_with(":")) {
    labels_[text.substr(0, text.size() - 1)] = static_cast<std::uint32_t>(kernel_->code.size());
    return;
  }
  if (text.starts_with(".reg")) return declare_registers(text);
  if (text.starts_with(".local")) {
    const ArrayOfText array(text);
    constexpr std::size_t kAlign = 16;
    symbols_[array.name] = kernel_->local_bytes;
    kernel_->local_bytes += (array.bytes + kAlign - 1) / kAlign * kAlign;
    return;
  }
  if (text.starts_with(".")) return;

  Insn insn;
  insn.line = statement.line;
  insn.text = text;
  std::ranges::replace(insn.text, '\t', ' ');
  if (text.starts_with("@")) {
    const std::size_t space = text.find_first_of(" \t");
    insn.guarded = true;
    insn.guard_negated = text[1] == '!';
    const std::size_t begin = insn.guard_negated ? 2 : 1;
    insn.guard = known_register(text.substr(begin, space - begin));
    text = trimmed(text.substr(space));
  }
  const Parts parts = parts_of(text);
  const std::string& what = parts.name.at(0);
  if (what == "bra") {
    insn.op = Op::kBranch;
    branches_.emplace_back(kernel_->code.size(), parts.operand(0));
  } else if (what == "ret" || what == "exit") {
    insn.op = Op::kExit;
  } else if (parts.opcode == "bar.sync" && parts.operand(0) == "0" && parts.operands.size() == 1) {
    insn.op = Op::kBarrier;
  } else if (what == "ld" || what == "st" || what == "atom") {
    read_memory(insn, parts);
  } else if (what == "shfl" || what == "redux" || what == "match" || what == "activemask") {
    read_exchange(insn, parts);
  } else if (!read_move_of_parts(insn, parts)) {
    read_compute(insn, parts);
  }
  kernel_->code.push_back(std::move(insn));
}

Register KernelParser::known_register(const std::string& text) {
  const auto found = registers_.find(text);
  if (found == registers_.end()) throw Error("no register " + text);
  return found->second;
}

Register KernelParser::source(const std::string& text, std::uint8_t width) {
  if (const auto found = registers_.find(text); found != registers_.end()) return found->second;
  if (const auto found = symbols_.find(text); found != symbols_.end())
    return constant(found->second, width);
  const bool is_float = text.starts_with("0f") || text.starts_with("0d");
  const char* const begin = text.c_str() + (is_float ? 2 : 0);
  char* end = nullptr;
  const std::uint64_t value = text.starts_with("-")
                                  ? static_cast<std::uint64_t>(std::strtoll(begin, &end, 0))
                                  : std::strtoull(begin, &end, is_float ? 16 : 0);
  if (end == begin || (*end != 0 && *end != 'U')) throw Error("no operand: " + text);
  return constant(value, width);
}

void KernelParser::read_compute(Insn& insn, const Parts& parts) {
  const Definition* const definition = find_definition(parts.opcode);
  if (definition == nullptr)
    throw Error("tests/ptx/instructions.h does not know the instruction " + parts.opcode);
  insn.compute = definition->compute;
  insn.to = known_register(parts.operand(0));
  const auto expect = [&](Register r, std::uint8_t width) {
    if (definition->any_width ? r.width < std::min<int>(width, 2) : r.width != width)
      throw Error("a register of another width");
  };
  expect(insn.to, definition->to);
  if (parts.operands.size() != definition->from.size() + 1)
    throw Error("too many, or few, operands");
  for (std::size_t i = 0; i < definition->from.size(); ++i) {
    insn.from[i] = source(parts.operands[i + 1], definition->from[i]);
    expect(insn.from[i], definition->from[i]);
  }
}

/// `[name+16]`, `[%rd1+-4]`.
std::pair<Register, std::int64_t> KernelParser::address(const std::string& text) {
  if (!text.starts_with("[")) throw Error("no address: " + text);
  const std::string inside = text.substr(1, text.size() - 2);
  const std::size_t plus = inside.find('+');
  const std::int64_t offset = plus == std::string::npos ? 0 : std::stoll(inside.substr(plus + 1));
  return {source(inside.substr(0, plus), 8), offset};
}

std::vector<Register> KernelParser::vector(const std::string& text,
                                           std::uint8_t width_of_constants) {
  std::vector<Register> all;
  const bool several = text.starts_with("{");
  for (const std::string& one : cut(several ? text.substr(1, text.size() - 2) : text, ','))
    all.push_back(source(one, std::max<std::uint8_t>(width_of_constants, 2)));
  if (all.size() > 4) throw Error("a vector of more than four");
  return all;
}

void KernelParser::read_memory(Insn& insn, const Parts& parts) {
  const std::string& type = parts.name.back();
  insn.bytes = width_of_type(type);
  insn.is_signed = type.starts_with("s");
  insn.is_volatile = parts.has("volatile");
  if (parts.has("shared"))
    insn.space = Space::kShared;
  else if (parts.has("local"))
    insn.space = Space::kLocal;
  else if (parts.has("param"))
    insn.space = Space::kParameter;
  else if (!parts.has("global"))
    throw Error("an address of any space");
  std::vector<Register> data;
  if (parts.name[0] == "atom") {
    if (!parts.has("add")) throw Error("an atomic operation that is no sum");
    insn.op = Op::kAtomicAdd;
    insn.to = known_register(parts.operand(0));
    std::tie(insn.from[0], insn.offset) = address(parts.operand(1));
    data = vector(parts.operand(2), insn.bytes);
  } else {
    const bool is_load = parts.name[0] == "ld";
    insn.op = is_load ? Op::kLoad : Op::kStore;
    data = vector(parts.operand(is_load ? 0 : 1), insn.bytes);
    std::tie(insn.from[0], insn.offset) = address(parts.operand(is_load ? 1 : 0));
  }
  insn.count = static_cast<std::uint8_t>(data.size());
  if (data.size() != (parts.has("v4") ? 4u : parts.has("v2") ? 2u : 1u))
    throw Error("a vector of another size");
  std::ranges::copy(data, insn.data.begin());
}

/// Reads an instruction that lanes of a warp compute together.
void KernelParser::read_exchange(Insn& insn, const Parts& parts) {
  const std::vector<std::string> written = cut(parts.operand(0), '|');
  insn.to = known_register(written.at(0));
  insn.has_predicate = written.size() > 1;
  if (insn.has_predicate) insn.to_predicate = known_register(written[1]);
  const std::uint8_t width = width_of_type(parts.name.back());
  if (parts.opcode == "activemask.b32") {
    insn.op = Op::kActiveMask;
    return;
  }
  if (parts.opcode == "shfl.sync.bfly.b32")
    insn.op = Op::kShuffle;
  else if (parts.opcode == "redux.sync.add.u32" || parts.opcode == "redux.sync.add.s32")
    insn.op = Op::kReduceAdd;
  else if (parts.opcode == "match.any.sync.b32" || parts.opcode == "match.any.sync.b64")
    insn.op = Op::kMatchAny;
  else
    throw Error("tests/ptx/kernel_parser.cc does not know the exchange " + parts.opcode);
  insn.from[0] = source(parts.operand(1), width);
  const std::size_t last = parts.operands.size() - 1;
  for (std::size_t i = 2; i < last; ++i) insn.from[i] = source(parts.operand(i), 4);
  insn.from[1] = source(parts.operand(last), 4);  // the mask
}

/// `mov.b64 {%r1, %r2}, %rd1`, and the way back.
bool KernelParser::read_move_of_parts(Insn& insn, const Parts& parts) {
  if (parts.name[0] != "mov" || parts.operands.size() != 2) return false;
  const bool apart = parts.operands[0].starts_with("{");
  if (!apart && !parts.operands[1].starts_with("{")) return false;
  const std::string& text = parts.operands[apart ? 0 : 1];
  insn.count = static_cast<std::uint8_t>(std::ranges::count(text, ',') + 1);
  insn.bytes = static_cast<std::uint8_t>(width_of_type(parts.name.back()) / insn.count);
  const std::vector<Register> all = vector(text, insn.bytes);
  for (const Register part : all)
    if (part.width != insn.bytes) throw Error("a part of another width");
  std::ranges::copy(all, insn.data.begin());
  insn.to = insn.from[0] = known_register(parts.operands[apart ? 1 : 0]);
  insn.compute = apart ? &take_apart : &put_together;
  return true;
}

}  // namespace canopy::ptx
