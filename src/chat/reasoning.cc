#include "src/chat/reasoning.h"

#include <algorithm>
#include <ctime>
#include <regex>
#include <utility>

#include "src/base/error.h"

namespace canopy::chat {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSpace = " \t\r\n";
// Texts that no template has.
constexpr const char* kQuestion = "canopy asks 1";
constexpr const char* kReasoning = "canopy reasons 2";
constexpr const char* kAnswer = "canopy answers 3";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

std::optional<std::string> render(const ChatTemplate& chat_template,
                                  const Conversation& conversation) {
  std::tm some_day{};
  some_day.tm_mday = 1;
  try {
    return chat_template.render(conversation, some_day);
  } catch (const Error&) {  // it refuses messages of this form
    return std::nullopt;
  }
}

std::optional<std::string> render_messages(const ChatTemplate& chat_template, Json messages) {
  Conversation conversation;
  conversation.messages = std::move(messages);
  conversation.add_generation_prompt = false;
  return render(chat_template, conversation);
}

/// Returns the text between the first `begin` and the first `end` after it; nothing if one is
/// missing.
std::optional<std::string> between(const std::string& text, std::string_view begin,
                                   std::string_view end) {
  const std::size_t first = text.find(begin);
  if (first == text.npos) return std::nullopt;
  const std::size_t from = first + begin.size(), to = text.find(end, from);
  if (to == text.npos) return std::nullopt;
  return text.substr(from, to - from);
}

/// The last tag of a text: it ends with '>' or ']', and begins with the last '<' or '['.
std::string_view last_tag(std::string_view text) {
  if (text.empty()) return {};
  const std::size_t begin = text.back() == '>'   ? text.rfind('<')
                            : text.back() == ']' ? text.rfind('[')
                                                 : text.npos;
  return begin == text.npos ? std::string_view() : text.substr(begin);
}

/// Tags around the reasoning of `message`, which the template may write or leave out.
std::optional<ReasoningTags> tags_around(const ChatTemplate& chat_template, const Json& message) {
  const Json question = {{"role", "user"}, {"content", kQuestion}};
  const Json plain = {{"role", "assistant"}, {"content", kAnswer}};
  const auto written = render_messages(chat_template, Json::array({question, message}));
  if (!written) return std::nullopt;
  const auto before = between(*written, kQuestion, kReasoning);
  const auto after = between(*written, kReasoning, kAnswer);
  if (!before || !after) return std::nullopt;
  // An earlier answer without reasoning begins as this one does, but has no tags, or empty ones.
  const auto history = render_messages(chat_template, Json::array({question, plain, question}));
  const auto header = history ? between(*history, kQuestion, kAnswer) : std::nullopt;
  const bool by_difference = header && before->starts_with(*header);
  const std::string_view open = by_difference
                                    ? trimmed(std::string_view(*before).substr(header->size()))
                                    : last_tag(trimmed(*before));
  ReasoningTags tags{std::string(open), std::string(trimmed(*after))};
  // A tag that the other one has within it begins a message of its own.
  if (tags.open.empty() || tags.close.empty() || tags.close.find(tags.open) != tags.close.npos)
    return std::nullopt;
  return tags;
}

/// The tags of an element with this name.
ReasoningTags tags_of(const std::string& name) {
  ReasoningTags tags{"<", "</"};
  tags.open.append(name).append(">");
  tags.close.append(name).append(">");
  return tags;
}

/// Tags of a template that has an empty block where a client asks for no reasoning.
std::optional<ReasoningTags> tags_of_none(const ChatTemplate& chat_template) {
  static const std::regex kEmpty(R"(<([A-Za-z_:|]+)>\s*</\1>\s*$)");
  Conversation conversation;
  conversation.messages = Json::array({Json{{"role", "user"}, {"content", kQuestion}}});
  conversation.variables = {{"enable_thinking", false}};
  const auto prompt = render(chat_template, conversation);
  std::smatch found;
  if (!prompt || !std::regex_search(*prompt, found, kEmpty)) return std::nullopt;
  return tags_of(found[1]);
}

/// Tags of a template that cuts an answer's reasoning off: content.split('</think>').
std::optional<ReasoningTags> tags_cut_off(const std::string& source) {
  static const std::regex kSplit(R"(split\(\s*['"]</([A-Za-z_:|]+)>['"])");
  std::smatch found;
  if (!std::regex_search(source, found, kSplit)) return std::nullopt;
  return tags_of(found[1]);
}

/// Returns the length of the longest end of `text` that begins `tag` but is not all of it; 0: none.
std::size_t begun_tag(std::string_view text, std::string_view tag) {
  for (std::size_t n = std::min(tag.size() - 1, text.size()); n > 0; --n)
    if (text.ends_with(tag.substr(0, n))) return n;
  return 0;
}

}  // namespace

std::optional<ReasoningTags> find_reasoning_tags(const ChatTemplate& chat_template) {
  const Json text = {{"type", "text"}, {"text", kAnswer}};
  const auto in_blocks = [&](const Json& thinking) {
    return Json{
        {"role", "assistant"},
        {"content", Json::array({Json{{"type", "thinking"}, {"thinking", thinking}}, text})}};
  };
  const Json forms[] = {
      {{"role", "assistant"}, {"content", kAnswer}, {"reasoning_content", kReasoning}},
      in_blocks(kReasoning),  // Mistral's, of two ages
      in_blocks(Json::array({Json{{"type", "text"}, {"text", kReasoning}}}))};
  for (const Json& form : forms)
    if (auto tags = tags_around(chat_template, form)) return tags;
  if (auto tags = tags_of_none(chat_template)) return tags;
  return tags_cut_off(chat_template.source());
}

bool opens_reasoning(const ReasoningTags& tags, std::string_view prompt) {
  return trimmed(prompt).ends_with(tags.open);
}

bool leaves_open(const ReasoningTags& tags, std::string_view answer) {
  const std::size_t open = answer.rfind(tags.open);
  return open != answer.npos && answer.find(tags.close, open) == answer.npos;
}

std::vector<TokenId> special_tokens_of(const ReasoningTags& tags, const Tokenizer& tokenizer) {
  std::vector<TokenId> special;
  for (const std::string& tag : {tags.open, tags.close})
    for (const TokenId token : tokenizer.encode(tag, AddSpecial::kNo))
      if (tokenizer.is_special(token)) special.push_back(token);
  return special;
}

ReasoningReader::ReasoningReader(ReasoningTags tags, bool open)
    : tags_(std::move(tags)), place_(open ? Place::kInside : Place::kBefore) {}

void ReasoningReader::read_before(Found& found) {
  const std::size_t begin = held_.find_first_not_of(kSpace);
  if (begin == held_.npos) return;
  const std::string_view said = std::string_view(held_).substr(begin);
  if (said.starts_with(tags_.open)) {
    held_.erase(0, begin + tags_.open.size());
    place_ = Place::kInside;
  } else if (!tags_.open.starts_with(said)) {
    found.text += std::exchange(held_, {});
    place_ = Place::kText;
  }
}

void ReasoningReader::read_inside(Found& found) {
  const std::size_t close = held_.find(tags_.close);
  const bool closed = close != held_.npos;
  const std::string_view known = std::string_view(held_).substr(
      0, closed ? close : held_.size() - begun_tag(held_, tags_.close));
  // Space at either end is dropped, so that the last of it waits for what comes.
  const std::size_t begin = begun_ ? 0 : std::min(known.find_first_not_of(kSpace), known.size());
  const std::size_t end = std::max(known.find_last_not_of(kSpace) + 1, begin);
  found.reasoning += known.substr(begin, end - begin);
  begun_ = begun_ || end > begin;
  held_.erase(0, closed ? close + tags_.close.size() : end);
  if (closed) place_ = Place::kAfter;
}

ReasoningReader::Found ReasoningReader::push(std::string_view more) {
  Found found;
  held_ += more;
  if (place_ == Place::kBefore) read_before(found);
  if (place_ == Place::kInside) read_inside(found);
  if (place_ == Place::kAfter) {
    held_.erase(0, held_.find_first_not_of(kSpace));
    if (!held_.empty()) place_ = Place::kText;
  }
  if (place_ == Place::kText) found.text += std::exchange(held_, {});
  return found;
}

ReasoningReader::Found ReasoningReader::end() {
  Found found;
  if (place_ == Place::kInside)
    found.reasoning =
        begun_ ? held_.substr(0, held_.find_last_not_of(kSpace) + 1) : std::string(trimmed(held_));
  else if (place_ == Place::kBefore)
    found.text = held_;
  held_.clear();
  return found;
}

}  // namespace canopy::chat
