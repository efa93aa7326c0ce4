#include "src/server/tools.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "src/base/ambient.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/json_text.h"
#include "src/base/utf8.h"
#include "src/grammar/schema/json_schema.h"

namespace canopy::server {

using Json = nlohmann::ordered_json;

namespace {

constexpr std::string_view kBegin = "<tool_call>", kEnd = "</tool_call>";
constexpr std::string_view kSpace = " \t\r\n";

std::string without_end_space(const std::string& text) {
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

/// Nine letters and digits: Mistral's templates take no other.
std::string any_call_id(ToolForm form) {
  static constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::string id = form == ToolForm::kMistral ? "" : "call_";
  std::uint64_t seed = any_seed();
  for (int i = 0; i < 9; ++i, seed /= kDigits.size()) id += kDigits[seed % kDigits.size()];
  return id;
}

/// Returns the length of the longest end of `text` that begins `mark` but is not all of it; 0:
/// none.
std::size_t begun_mark(std::string_view text, std::string_view mark) {
  for (std::size_t n = std::min(mark.size() - 1, text.size()); n > 0; --n)
    if (text.ends_with(mark.substr(0, n))) return n;
  return 0;
}

std::vector<std::string> names_of(const std::vector<Tool>& tools) {
  std::vector<std::string> names;
  for (const Tool& tool : tools) names.push_back(tool.name);
  return names;
}

}  // namespace

std::optional<ToolForm> find_tool_form(const chat::ChatTemplate& chat_template) {
  const Json call = {{"id", "abcdefghi"},
                     {"type", "function"},
                     {"function", {{"name", "probe_fn"}, {"arguments", {{"alpha", "beta"}}}}}};
  const Json parameters = {{"type", "object"},
                           {"properties", {{"alpha", {{"type", "string"}, {"description", "a"}}}}},
                           {"required", Json::array({"alpha"})}};
  chat::Conversation probe;
  probe.messages =
      Json::array({{{"role", "user"}, {"content", "question"}},
                   {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}}});
  probe.tools = Json::array(
      {{{"type", "function"},
        {"function",
         {{"name", "probe_fn"}, {"description", "a tool"}, {"parameters", parameters}}}}});
  probe.add_generation_prompt = false;
  std::string text;
  try {
    text = chat_template.render(probe, {});
  } catch (const Error&) {  // it has no tools
    return std::nullopt;
  }
  const std::size_t question = text.rfind("question");
  if (question == std::string::npos) return std::nullopt;
  text.erase(0, question);
  const auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
  if (has("<tool_call>\n{\"name\": \"probe_fn\", \"arguments\": {")) return ToolForm::kHermes;
  if (has("{\"name\": \"probe_fn\", \"parameters\": {")) return ToolForm::kLlama;
  if (has(kMistralCalls) && has("[{\"name\": \"probe_fn\", \"arguments\": {"))
    return ToolForm::kMistral;
  return std::nullopt;
}

namespace {

/// Arguments are an object, whatever else their schema accepts. Where it names none, the function
/// has none.
grammar::Grammar arguments_grammar(const Json& parameters) {
  const Json nothing{{"type", "object"}, {"additionalProperties", false}};
  return grammar::json_grammar(grammar::accepts_any_object(parameters) ? nothing : parameters,
                               grammar::Values::kObjects);
}

}  // namespace

grammar::Grammar call_grammar(ToolForm form, const std::vector<Tool>& tools) {
  const std::string name_json = form == ToolForm::kHermes    ? "<tool_call>\n{\"name\": "
                                : form == ToolForm::kMistral ? "[{\"name\": "
                                                             : "{\"name\": ";
  const char* const key = form == ToolForm::kLlama ? ", \"parameters\": " : ", \"arguments\": ";
  const char* const end = form == ToolForm::kHermes    ? "}\n</tool_call>"
                          : form == ToolForm::kMistral ? "}]"
                                                       : "}";
  std::vector<grammar::Grammar> calls;
  for (const Tool& tool : tools) {
    const std::string begin = name_json + json_text(Json(tool.name)) + key;
    const grammar::Grammar parts[] = {
        grammar::literal(begin),
        in_context("reading the parameters of the tool " + in_quotes(tool.name),
                   [&] { return arguments_grammar(tool.parameters); }),
        grammar::literal(end)};
    calls.push_back(grammar::sequence(parts));
  }
  return grammar::alternatives(calls);
}

ToolCallReader::ToolCallReader(ToolForm form, const std::vector<Tool>& tools, bool begun,
                               TellCalls tell)
    : form_(form),
      tell_(begun ? TellCalls::kAsWritten : tell),
      forced_(begun),
      names_(names_of(tools)),
      scanner_(names_),
      in_call_(begun && form != ToolForm::kHermes) {}

std::optional<ToolCall> ToolCallReader::call_of(const Json& call) const {
  if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return std::nullopt;
  if (call.contains("arguments") == call.contains("parameters")) return std::nullopt;
  const Json& arguments = call[call.contains("arguments") ? "arguments" : "parameters"];
  if (!arguments.is_object()) return std::nullopt;
  if (std::find(names_.begin(), names_.end(), call["name"]) == names_.end()) return std::nullopt;
  return ToolCall{"", call["name"], exact_json_text(arguments)};
}

void ToolCallReader::add_calls(std::vector<ToolCall> calls, Found& found) const {
  for (ToolCall& call : calls) {
    if (!call.name.empty()) call.id = any_call_id(form_);
    call.at = said_ + found.text.size();
    found.calls.push_back(std::move(call));
  }
}

bool ToolCallReader::read_calls(const std::string& json, Found& found) const {
  try {
    const Json parsed = parse_ordered_json(json, LargeIntegers::kKept);
    std::vector<ToolCall> calls;
    for (const Json& one : parsed.is_array() ? parsed : Json::array({parsed})) {
      std::optional<ToolCall> call = call_of(one);
      if (!call) return false;
      calls.push_back(std::move(*call));
    }
    // The arguments are reported as they were written, as in a stream.
    std::vector<ToolCall> written = CallScanner(names_).push(json);
    const bool all = !calls.empty();
    add_calls(written.size() == calls.size() ? std::move(written) : std::move(calls), found);
    return all;
  } catch (const Error&) {  // it only looked like one
    return false;
  }
}

/// Reports what `held_` has of a call up to `end`.
void ToolCallReader::follow(std::size_t end, Found& found) {
  if (tell_ == TellCalls::kWhole || end <= followed_) return;
  add_calls(scanner_.push(std::string_view(held_).substr(followed_, end - followed_)), found);
  followed_ = end;
}

void ToolCallReader::read_hermes(Found& found) {
  while (true) {
    const std::string_view mark = in_call_ ? kEnd : kBegin;
    const std::size_t at = held_.find(mark);
    if (at == std::string::npos) break;
    if (in_call_) follow(at, found);
    const std::string before = held_.substr(0, at);
    held_.erase(0, at + mark.size());
    followed_ = 0;
    if (!in_call_) {
      found.text += without_end_space(before);  // white space before a call belongs to its form
      scanner_ = CallScanner(names_);
    } else if (scanner_.told() || read_calls(before, found)) {
      called_ = true;
    } else {
      found.text.append(kBegin).append(before).append(kEnd);
    }
    in_call_ = !in_call_;
  }
  if (in_call_) return follow(held_.size() - begun_mark(held_, kEnd), found);
  std::size_t shown = held_.size() - begun_mark(held_, kBegin);
  while (shown > 0 && kSpace.find(held_[shown - 1]) != std::string::npos) --shown;
  found.text += held_.substr(0, shown);
  held_.erase(0, shown);
}

ToolCallReader::Found ToolCallReader::push(const std::string& text, bool calls_begin) {
  Found found = read(text, calls_begin);
  said_ += found.text.size();
  return found;
}

ToolCallReader::Found ToolCallReader::read(const std::string& text, bool calls_begin) {
  Found found;
  held_ += text;
  if (form_ == ToolForm::kHermes) {
    if (!held_.empty()) read_hermes(found);
    return found;
  }
  if (form_ == ToolForm::kLlama && !plain_ && !in_call_) {
    const std::size_t first = held_.find_first_not_of(kSpace);
    if (first == std::string::npos) return found;
    in_call_ = held_[first] == '{';
    plain_ = !in_call_;
  }
  in_call_ = in_call_ || calls_begin;
  if (in_call_)
    follow(held_.size(), found);
  else
    found.text = std::exchange(held_, {});
  return found;
}

ToolCallReader::Found ToolCallReader::end() {
  Found found;
  if (in_call_) follow(held_.size(), found);
  std::string rest = std::exchange(held_, {});
  if (forced_) {  // cut off, what there is of it is no text
    if (in_call_) add_calls(scanner_.end(), found);
    return found;
  }
  if (in_call_ && (scanner_.told() || read_calls(rest, found))) return found;
  if (in_call_ && form_ == ToolForm::kHermes) found.text = kBegin;
  found.text += called_ ? without_end_space(rest) : rest;
  return found;
}

}  // namespace canopy::server
