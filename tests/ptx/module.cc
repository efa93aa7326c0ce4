#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <regex>

#include "src/base/error.h"
#include "tests/ptx/kernel_parser.h"
#include "tests/ptx/program.h"

namespace canopy::ptx {

namespace {

/// The first argument of a template's name.
std::string first_argument(const std::string& name) {
  const std::size_t begin = name.find('<');
  if (begin == std::string::npos) return name;
  int depth = 1;
  std::size_t end = begin + 1;
  for (; end < name.size(); ++end) {
    if (name[end] == '<') ++depth;
    if (name[end] == '>') --depth;
    if (depth == 0 || (depth == 1 && name[end] == ',')) break;
  }
  std::string type = name.substr(begin + 1, end - begin - 1);
  while (!type.empty() && type.back() == ' ') type.pop_back();
  return type;
}

}  // namespace

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? std::string(text.get()) : name;
}

std::string short_name(std::string type) {
  for (const std::string space : {"canopy::cuda::", "canopy::format::", "canopy::"})
    for (std::size_t at = 0; (at = type.find(space, at)) != std::string::npos;)
      type.erase(at, space.size());
  return type;
}

Module::Module(std::string text) : text_(std::move(text)) {
  std::smatch release;
  const std::string head = text_.substr(0, 1000);
  if (std::regex_search(head, release, std::regex("release ([0-9]+[.][0-9]+)")))
    compiler_ = release[1];
  int number = 0;
  for (std::size_t at = 0, end; at < text_.size(); at = end + 1) {
    end = std::min(text_.find('\n', at), text_.size());
    ++number;
    const std::string_view line = std::string_view(text_).substr(at, end - at);
    if (line.starts_with(".shared") || line.starts_with(".extern .shared")) {
      const ArrayOfText array(line);
      shared_[array.name] = {array.bytes, array.align};
    } else if (line.starts_with(".global")) {
      const ArrayOfText array(line);
      globals_[array.name].bytes = array.values;
    } else if (constexpr std::string_view kEntry = ".visible .entry "; line.starts_with(kEntry)) {
      const std::size_t close = std::min(text_.find("\n}", at), text_.size());
      const std::string name(line.substr(kEntry.size(), line.find('(') - kEntry.size()));
      entries_.insert_or_assign(first_argument(demangled(name)), Entry{at, close, number, nullptr});
    }
  }
  if (entries_.empty()) throw Error("PTX: there is no kernel in this text");
}

const Kernel* Module::find(const std::string& type) {
  const auto found = entries_.find(type);
  if (found == entries_.end()) return nullptr;
  Entry& entry = found->second;
  if (entry.kernel == nullptr) {
    const std::string_view text =
        std::string_view(text_).substr(entry.begin, entry.end - entry.begin);
    entry.kernel = KernelParser(*this, short_name(type), entry.line).parse(text);
  }
  return entry.kernel.get();
}

std::vector<std::string> Module::types() const {
  std::vector<std::string> all;
  for (const auto& [type, entry] : entries_) all.push_back(type);
  return all;
}

std::vector<const Kernel*> Module::used() const {
  std::vector<const Kernel*> all;
  for (const auto& [type, entry] : entries_)
    if (entry.kernel != nullptr) all.push_back(entry.kernel.get());
  return all;
}

}  // namespace canopy::ptx
