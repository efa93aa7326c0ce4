#include "src/cli/output/text_cursor.h"

#include <algorithm>

#include "src/text/display_width.h"

namespace canopy::cli {

namespace {

constexpr int kTab = 8;

bool in(char32_t character, char32_t first, char32_t last) {
  return character >= first && character <= last;
}
/// Makes one emoji of itself and the one before, or does not, as the terminal's fonts have it.
bool changes_emoji(char32_t character) {
  return character == 0xFE0F || in(character, 0x1F3FB, 0x1F3FF) || in(character, 0x1F1E6, 0x1F1FF);
}

}  // namespace

void TextCursor::resize(int columns) {
  if (columns == columns_) return;
  columns_ = columns;
  // Some terminals wrap their lines anew, others cut them.
  for (int& at : at_) at = std::min(at, columns - 1);
  at_.push_back(line_ % columns);
  if (line_ > 0 && line_ % columns == 0) at_.push_back(columns);
  keep_different();
}

void TextCursor::advance(char32_t character) {
  if (character == '\n' || character == '\r') {
    at_ = {0};
    line_ = 0;
  } else if (character == '\t') {
    const bool stays = may_wrap();  // some terminals
    for (int& at : at_) at = std::min((at / kTab + 1) * kTab, columns_ - 1);
    if (stays) at_.push_back(columns_);
    line_ = (line_ / kTab + 1) * kTab;
    keep_different();
  } else if (character == '\b') {
    for (int& at : at_) at = std::max(0, at - 1);
    line_ = std::max(0, line_ - 1);
    keep_different();
  } else {
    const int width = text::display_width(character);
    const bool unsure = joins_ || changes_emoji(character);
    move(unsure ? 0 : width, unsure ? std::max(width, 2) : width);
  }
  joins_ = character == 0x200D;
}

void TextCursor::move(int least, int most) {
  std::vector<int> moved;
  for (const int at : at_)
    for (int width = least; width <= most; ++width)
      moved.push_back(at + width > columns_ ? width : at + width);
  at_ = std::move(moved);
  line_ += most;
  keep_different();
}

bool TextCursor::may_wrap() const { return at_.back() >= columns_; }

void TextCursor::keep_different() {
  std::sort(at_.begin(), at_.end());
  at_.erase(std::unique(at_.begin(), at_.end()), at_.end());
}

}  // namespace canopy::cli
