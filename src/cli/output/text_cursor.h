#pragma once
#include <vector>

namespace canopy::cli {

/// Place where text that was written leaves a terminal's cursor, as far as it is known from
/// outside. Terminals differ on emoji and after a resize, so there may be several columns. One
/// thread.
class TextCursor {
 public:
  void resize(int columns);  // of the terminal, before the first character and when they change
  void advance(char32_t character);

  /// True if the last column may just have been filled. A terminal then goes to the next line only
  /// with the next character, and forgets that if the cursor is moved in between.
  bool may_wrap() const;
  bool at_line_start() const { return at_.front() == 0 && at_.size() == 1; }

 private:
  void move(int least, int most);
  void keep_different();

  int columns_ = 80;
  std::vector<int> at_{0};  // sorted; columns_: after the last column
  int line_ = 0;            // columns since the last newline, as if the terminal were as wide
  bool joins_ = false;      // after a zero-width joiner
};

}  // namespace canopy::cli
