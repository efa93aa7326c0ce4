#pragma once
// Parts that the tests of several APIs share: refusals by name, and the events of a stream.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "src/base/json.h"
#include "src/server/replies/api_error.h"
#include "src/server/replies/reply_form.h"

namespace canopy::server::testing {

using Json = nlohmann::ordered_json;

/// Returns the message with which read() refuses these members; fails unless the error is of `name`
/// and says it.
template <class Read>
std::string refusal_of(const Read& read, const std::string& members, const std::string& name) {
  try {
    read(members);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, name) << members;
    EXPECT_NE(error.message.find(name), std::string::npos) << error.message;
    return error.message;
  }
  ADD_FAILURE() << members;
  return {};
}

/// Events of a stream, each with the name that its type is.
inline std::vector<Json> events_of(const std::string& written) {
  std::vector<Json> events;
  for (std::size_t at = 0; at < written.size();) {
    const std::size_t line = written.find('\n', at), end = written.find("\n\n", at);
    const std::string name = written.substr(at, line - at);
    const std::string data = written.substr(line + 1, end - line - 1);
    EXPECT_TRUE(data.starts_with("data: ")) << data;
    events.push_back(Json::parse(data.substr(6)));
    EXPECT_EQ(name, "event: " + events.back()["type"].get<std::string>());
    at = end + 2;
  }
  return events;
}

/// The reply to an answer of one text. piece(at, cut): its next bytes, as a job gives them.
template <class Form, class Piece>
Json whole_reply(Answer& answer, Form& form, const std::string& text, const Piece& piece) {
  std::vector<std::vector<ToolCall>> calls;
  JobUpdate update = piece(0, text.size());
  answer.take(update, calls);
  return parse_ordered_json(form.whole(), LargeIntegers::kKept);
}
/// The events of the same as a stream, `cut` bytes at a time.
template <class Form, class Piece>
std::vector<Json> streamed_reply(Answer& answer, Form& form, const std::string& text,
                                 std::size_t cut, const Piece& piece) {
  std::string out = form.first();
  std::vector<std::vector<ToolCall>> calls;
  for (std::size_t at = 0; at < text.size(); at += cut) {
    JobUpdate update = piece(at, cut);
    answer.take(update, calls);
    out += form.more(update, calls);
  }
  return events_of(out + form.last());
}

}  // namespace canopy::server::testing
