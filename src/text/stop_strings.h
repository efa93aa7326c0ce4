#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/text/tokenizer.h"

namespace canopy {

/// Ends a text at the first of some strings, however tokens cut it: what may be the beginning of
/// one is held back until it is known. One thread at a time.
class StopStrings {
 public:
  /// Throws Error if one of them is empty.
  explicit StopStrings(std::vector<std::string> stops);

  /// Returns what can be shown of the text now: never the stop string, nor what follows it.
  std::string push(std::string_view text);
  /// The text ended by itself: what was held back.
  std::string flush();
  bool stopped() const { return which_.has_value(); }
  /// The string, by its number, that ended the text.
  std::optional<std::size_t> which() const { return which_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::optional<std::size_t> which_;
};

/// The part that a reader sees of a text whose tokens come one by one: whole characters, up to a
/// stop string, and nothing of the token that ended it. Special tokens have no text, but a stop
/// string that names some stops at them, too. One thread at a time.
class ShownText {
 public:
  /// `named`: special tokens that are shown by their names. `least`: a stop string counts where it
  /// begins after the text of this number of tokens.
  ShownText(const Tokenizer& tokenizer, const std::vector<std::string>& stops,
            std::vector<TokenId> named = {}, int least = 0);

  std::string push(TokenId token);
  /// The text is over: what was held back. Bytes that are no character come out as U+FFFD where the
  /// model ended it; where it was cut off, inside a character perhaps, they are left out.
  std::string end(bool cut_off);
  bool stopped() const { return marked_stops_.stopped() || stops_.stopped(); }
  /// The stop string that ended the text; empty: none did.
  std::string stopping_word() const;

 private:
  const Tokenizer* tokenizer_;
  std::vector<std::string> words_;  // the stop strings
  std::vector<TokenId> named_;
  int least_;                   // tokens before stop strings count
  std::optional<TokenId> end_;  // the last token, if it ends texts: it has one where more follows
  TextStream stream_;
  StopStrings marked_stops_;  // in the text with marks in place of special tokens
  StopStrings stops_;         // in what it lets through, without the marks
};
/// All of it at once. `cut_off`: see ShownText::end.
std::string shown_text(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                       const std::vector<std::string>& stops, bool cut_off);

}  // namespace canopy
