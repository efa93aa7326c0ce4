#include "src/grammar/pattern/code_points.h"

#include <algorithm>
#include <utility>

namespace canopy::grammar {

constexpr char32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

CodePoints::CodePoints(std::vector<CodeRange> ranges) : ranges_(std::move(ranges)) { order(); }

void CodePoints::add(char32_t first, char32_t last) {
  ranges_.push_back({first, last});
  order();
}

void CodePoints::add(const CodePoints& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  order();
}

CodePoints CodePoints::others() const {
  CodePoints out;
  char32_t next = 0;
  for (const CodeRange& range : ranges_) {
    if (range.first > next) out.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) out.ranges_.push_back({next, kLastCodePoint});
  out.order();
  return out;
}

void CodePoints::order() {
  std::ranges::sort(ranges_, {}, &CodeRange::first);
  std::vector<CodeRange> out;
  const auto add = [&](char32_t first, char32_t last) {
    if (first > last) return;
    if (!out.empty() && first <= out.back().last + 1)
      out.back().last = std::max(out.back().last, last);
    else
      out.push_back({first, last});
  };
  for (const CodeRange& range : ranges_) {
    add(range.first, std::min<char32_t>(range.last, kFirstSurrogate - 1));
    add(std::max<char32_t>(range.first, kLastSurrogate + 1), range.last);
  }
  ranges_ = std::move(out);
}

CodePoints digits() { return CodePoints({{'0', '9'}}); }

CodePoints word_characters() {
  return CodePoints({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
}

CodePoints white_space() {
  CodePoints out({{'\t', '\r'},
                  {' ', ' '},
                  {0xA0, 0xA0},
                  {0x1680, 0x1680},
                  {0x2000, 0x200A},
                  {0x202F, 0x202F},
                  {0x205F, 0x205F},
                  {0x3000, 0x3000},
                  {0xFEFF, 0xFEFF}});
  out.add(line_ends());
  return out;
}

CodePoints line_ends() { return CodePoints({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}); }

}  // namespace canopy::grammar
