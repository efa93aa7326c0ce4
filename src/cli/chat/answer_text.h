#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "src/chat/reasoning.h"
#include "src/cli/output/progress_line.h"

namespace canopy::cli {

/// An answer on its way to stdout: its reasoning dim on a terminal, and nowhere else.
class AnswerText {
 public:
  /// `tags`: none where the model's template knows of no reasoning. `prompt`: what the answer
  /// follows.
  AnswerText(ProgressLine& progress, bool shows_reasoning,
             const std::optional<chat::ReasoningTags>& tags, std::string_view prompt);
  ~AnswerText();
  AnswerText(const AnswerText&) = delete;
  AnswerText& operator=(const AnswerText&) = delete;

  /// Throws OutputError.
  void push(const std::string& more);
  void end();
  const std::string& answer() const { return answer_; }
  const std::string& reasoning() const { return reasoning_; }

 private:
  void add(const chat::ReasoningReader::Found& found);
  void end_reasoning();

  ProgressLine& progress_;
  const bool shows_reasoning_;
  std::optional<chat::ReasoningReader> reader_;
  std::string answer_, reasoning_;
  bool dim_ = false;
};

}  // namespace canopy::cli
