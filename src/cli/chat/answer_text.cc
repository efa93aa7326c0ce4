#include "src/cli/chat/answer_text.h"

#include <unistd.h>

#include <utility>

#include "src/cli/output/standard_output.h"

namespace canopy::cli {

AnswerText::AnswerText(ProgressLine& progress, bool shows_reasoning,
                       const std::optional<chat::ReasoningTags>& tags, std::string_view prompt)
    : progress_(progress), shows_reasoning_(shows_reasoning && isatty(STDOUT_FILENO) == 1) {
  if (tags) reader_.emplace(*tags, chat::opens_reasoning(*tags, prompt));
}

AnswerText::~AnswerText() {
  try {
    end_reasoning();
  } catch (const OutputError&) {  // what ends the run has been reported
  }
}

void AnswerText::push(const std::string& more) {
  add(reader_ ? reader_->push(more) : chat::ReasoningReader::Found{"", more});
}

void AnswerText::end() {
  if (reader_) add(reader_->end());
  end_reasoning();
}

void AnswerText::add(const chat::ReasoningReader::Found& found) {
  reasoning_ += found.reasoning;
  if (shows_reasoning_ && !found.reasoning.empty()) {
    if (!dim_) progress_.dim(true);
    dim_ = true;
    progress_.write(found.reasoning);
  }
  if (found.text.empty()) return;
  if (dim_) {
    end_reasoning();
    progress_.write("\n\n");
  }
  answer_ += found.text;
  progress_.write(found.text);
}

void AnswerText::end_reasoning() {
  if (std::exchange(dim_, false)) progress_.dim(false);
}

}  // namespace canopy::cli
