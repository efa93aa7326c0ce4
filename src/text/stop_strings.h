#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace canopy {

/// Ends a text at the first of some strings, however tokens cut it: what may be the beginning of
/// one is held back until it is known. One thread at a time.
class StopStrings {
 public:
  /// Throws Error if one of them is empty.
  explicit StopStrings(std::vector<std::string> stops);

  /// What can be shown of the text so far; the stop string and what follows it never are.
  std::string push(std::string_view text);
  /// The text ended by itself: what was held back.
  std::string flush();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace canopy
