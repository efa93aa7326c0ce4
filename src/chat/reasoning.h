#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/chat/chat_template.h"
#include "src/text/tokenizer.h"

namespace canopy::chat {

/// The marks between which a model writes its reasoning, before its answer.
struct ReasoningTags {
  std::string open, close;  // without the space around them
};

/// Tags that a template writes around a message's reasoning, found by rendering a message that has
/// some. Else those of the empty block that it writes where there shall be none, or those that it
/// cuts a message's reasoning off at. Nothing if it does none of these.
std::optional<ReasoningTags> find_reasoning_tags(const ChatTemplate& chat_template);

/// True if a prompt ends inside of an opened block, so that the answer has no opening tag.
bool opens_reasoning(const ReasoningTags& tags, std::string_view prompt);

/// True if the beginning of an answer ends inside of a block.
bool leaves_open(const ReasoningTags& tags, std::string_view answer);

/// Special tokens that the tags are written with: they must be shown for a reader to see the tags.
std::vector<TokenId> special_tokens_of(const ReasoningTags& tags, const Tokenizer& tokenizer);

/// Separates the reasoning of one answer from its text, piece by piece: what may be the beginning
/// of a tag is held back until it is known. Space next to the tags belongs to neither. One thread.
class ReasoningReader {
 public:
  /// `open`: the prompt has the opening tag (opens_reasoning).
  ReasoningReader(ReasoningTags tags, bool open);

  struct Found {
    std::string reasoning, text;
  };
  Found push(std::string_view more);
  /// The answer is over: what was held back.
  Found end();

 private:
  enum class Place : std::uint8_t { kBefore, kInside, kAfter, kText };

  void read_before(Found& found);
  void read_inside(Found& found);

  ReasoningTags tags_;
  Place place_;
  bool begun_ = false;  // reasoning that is not space
  std::string held_;
};

}  // namespace canopy::chat
