#include "tests/ptx/access_log.h"

#include <algorithm>

namespace canopy::ptx {

void AccessLog::begin_all() {
  all_begin_ = block_begin_ = ++phase_;
  if (pages_.size() <= kMostPages) return;
  pages_.clear();  // whose accesses are all ordered now
  last_index_ = ~std::uint64_t{0};
}

void AccessLog::Page::refine(unsigned to) {
  for (; shift > to; --shift) {
    std::vector<Cell> finer(cells.size() * 2);
    for (std::size_t i = 0; i < finer.size(); ++i) finer[i] = cells[i / 2];
    cells = std::move(finer);
  }
}

AccessLog::Page& AccessLog::page(std::uint64_t index) {
  if (index == last_index_) return *last_;
  Page& found = pages_[index];
  if (found.cells.empty()) found.cells.resize(kPage >> found.shift);
  last_index_ = index;
  last_ = &found;
  return found;
}

const char* AccessLog::conflict(const Cell& cell, std::uint16_t thread, Use use) const {
  const bool both_atomic = use == Use::kAtomic && cell.writer == kAtomically;
  if (elsewhere(cell.written) && !both_atomic) return "another block wrote it";
  if (cell.written == phase_ && cell.writer != thread && !both_atomic)
    return "another thread wrote it, with no barrier between";
  if (use == Use::kRead) return nullptr;
  if (elsewhere(cell.read) || elsewhere(cell.read_elsewhere)) return "another block read it";
  if (cell.read == phase_ && cell.reader != thread)
    return "another thread read it, with no barrier between";
  return nullptr;
}

void AccessLog::remember(Cell& cell, std::uint16_t thread, Use use) const {
  if (use == Use::kRead) {
    if (elsewhere(cell.read)) cell.read_elsewhere = cell.read;
    cell.reader = cell.read == phase_ && cell.reader != thread ? kSeveral : thread;
    cell.read = phase_;
  } else {
    cell.writer = use == Use::kAtomic ? kAtomically : thread;
    cell.written = phase_;
  }
}

std::optional<std::string> AccessLog::note(std::uint64_t address, std::size_t bytes, int thread,
                                           Use use) {
  Page& at = page(address / kPage);
  const std::uint64_t offset = address % kPage;
  const unsigned needed = ((offset | bytes) & 1) != 0 ? 0 : ((offset | bytes) & 2) != 0 ? 1 : 2;
  if (needed < at.shift) at.refine(needed);
  const auto who = static_cast<std::uint16_t>(thread);
  const char* found = nullptr;
  const std::uint64_t end = std::min(offset + bytes, kPage);  // aligned accesses end before it
  for (std::uint64_t i = offset >> at.shift; i < (end + (1u << at.shift) - 1) >> at.shift; ++i) {
    Cell& cell = at.cells[i];
    if (found == nullptr) found = conflict(cell, who, use);
    remember(cell, who, use);
  }
  if (found == nullptr) return std::nullopt;
  return found;
}

}  // namespace canopy::ptx
