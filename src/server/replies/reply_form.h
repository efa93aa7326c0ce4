#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/server/replies/answer.h"
#include "src/server/replies/api_error.h"
#include "src/server/served_model.h"

namespace canopy::server {

/// The form that an API gives one answer: a whole reply, or the events of a stream. One thread.
class ReplyForm {
 public:
  /// The answer must outlive it.
  explicit ReplyForm(const Answer& answer) : answer_(answer) {}
  virtual ~ReplyForm() = default;
  ReplyForm(const ReplyForm&) = delete;
  ReplyForm& operator=(const ReplyForm&) = delete;

  /// Writes the whole of an answer that has ended, as JSON.
  virtual std::string whole() const = 0;

  // Events of a stream, "" for none: those before the first update, those of an update that the
  // answer has taken, those after the last.
  virtual std::string first() = 0;
  virtual std::string more(const JobUpdate& update,
                           const std::vector<std::vector<ToolCall>>& new_calls) = 0;
  virtual std::string last() = 0;
  /// Writes an event that adds nothing to the text.
  std::string idle() { return written(empty_chunk()); }
  /// Writes an event that says how much of the prompt has been read.
  std::string progress(const JobUpdate& update);
  std::string error(const ApiError& why) { return written(error_json(why)); }

 protected:
  virtual nlohmann::json empty_chunk() const = 0;
  virtual nlohmann::json error_json(const ApiError& why) const { return why.body(); }
  virtual std::string written(const nlohmann::json& chunk) { return event(chunk); }

  const Answer& answer_;
};

/// The form of the answer's API. Both must outlive it.
std::unique_ptr<ReplyForm> form_of(const Answer& answer, const ServedModel& model);

// The forms, one for each API or two that are much alike.

std::unique_ptr<ReplyForm> openai_form(const Answer& answer, const ServedModel& model);
std::unique_ptr<ReplyForm> llama_form(const Answer& answer, const ServedModel& model);
std::unique_ptr<ReplyForm> anthropic_form(const Answer& answer);
/// Form of OpenAI's Responses API; the request has its terms.
std::unique_ptr<ReplyForm> responses_form(const Answer& answer);
/// Lists the items of such a reply's output, of an answer that has ended.
nlohmann::ordered_json response_output(const Answer& answer);

}  // namespace canopy::server
