#include "src/base/json.h"

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/json_text.h"
#include "src/base/utf8.h"

namespace canopy {

namespace {

using nlohmann::json;

/// Builds a document from the parser's events.
template <class Json>
class Builder final : public nlohmann::json_sax<Json> {
 public:
  using typename nlohmann::json_sax<Json>::number_integer_t;
  using typename nlohmann::json_sax<Json>::number_unsigned_t;
  using typename nlohmann::json_sax<Json>::number_float_t;
  using typename nlohmann::json_sax<Json>::string_t;
  using typename nlohmann::json_sax<Json>::binary_t;

  explicit Builder(LargeIntegers large) : large_(large) {}
  Json take() && { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    const bool integer = text.find_first_of(".eE") == std::string::npos;
    if (integer && large_ == LargeIntegers::kKept)
      return put(Json::binary({text.begin(), text.end()}));
    return put(value);
  }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t& value) override { return put(std::move(value)); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& key) override {
    member_ = add_member(key);
    if (member_ == nullptr) throw Error("the key " + in_quotes(key) + " is given twice");
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&, const json::exception& e) override {
    throw Error("this is not JSON, at byte " + std::to_string(byte) + ": " + syntax_error(e));
  }

 private:
  template <class Value>
  bool put(Value&& value) {
    place() = std::forward<Value>(value);
    return true;
  }
  bool open(Json empty) {
    if (open_.size() == kMostJsonDepth)
      throw Error("this JSON is nested deeper than " + std::to_string(kMostJsonDepth) + " levels");
    Json& at = place();
    at = std::move(empty);
    open_.push_back(&at);
    keys_.emplace_back();
    return true;
  }
  /// Null if there is such a member.
  Json* add_member(const string_t& key) {
    Json& object = *open_.back();
    if constexpr (!std::is_same_v<Json, nlohmann::ordered_json>) {
      const auto [at, fresh] = object.emplace(key, nullptr);
      return fresh ? &*at : nullptr;
    } else {  // whose emplace() searches all members
      if (!keys_.back().insert(key).second) return nullptr;
      auto& members = object.template get_ref<typename Json::object_t&>();
      if (members.size() == kMostOrderedMembers)
        throw Error("an object of this JSON has more than " + std::to_string(kMostOrderedMembers) +
                    " members");
      return &members.Json::object_t::Container::emplace_back(key, nullptr).second;
    }
  }
  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }
  /// Returns the place of the next value. Throws Error for more than kMostJsonValues.
  Json& place() {
    if (++values_ > kMostJsonValues)
      throw Error("this JSON has more than " + std::to_string(kMostJsonValues) + " values");
    if (open_.empty()) return root_;
    if (open_.back()->is_object()) return *member_;
    open_.back()->push_back(nullptr);
    return open_.back()->back();
  }

  const LargeIntegers large_;
  Json root_;
  std::vector<Json*> open_;  // each is the last child of the one before: it stays where it is
  std::vector<std::unordered_set<std::string>> keys_;  // of each, if it is ordered
  Json* member_ = nullptr;
  std::size_t values_ = 0;
};

template <class Json>
Json parse(std::string_view text, LargeIntegers large) {
  Builder<Json> builder(large);
  Json::sax_parse(text, &builder);
  return std::move(builder).take();
}

}  // namespace

std::string syntax_error(const json::exception& error) {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: what is wrong", or
  // "[json.exception.out_of_range.406] what is wrong"
  std::string_view what = error.what();
  for (const std::string_view until : {"] parse error at ", "] ", ": "})
    if (const std::size_t at = what.find(until); at < 60) what.remove_prefix(at + until.size());
  return in_quotes(what);
}

nlohmann::json parse_json(std::string_view text) {
  return parse<nlohmann::json>(text, LargeIntegers::kRounded);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, LargeIntegers large) {
  return parse<nlohmann::ordered_json>(text, large);
}

std::optional<std::string> large_integer(const nlohmann::ordered_json& value) {
  if (value.is_binary()) return std::string(value.get_binary().begin(), value.get_binary().end());
  if (value.is_number_unsigned() && !integer_in<std::int64_t>(value)) return value.dump();
  return std::nullopt;
}

namespace {

void append_json(std::string& out, const nlohmann::ordered_json& value) {
  if (const auto digits = large_integer(value)) {
    out += *digits;
  } else if (!value.is_structured()) {
    out += json_text(value);
  } else {
    const bool object = value.is_object();
    out += object ? '{' : '[';
    bool first = true;
    for (const auto& [key, member] : value.items()) {
      if (!first) out += ',';
      first = false;
      if (object) out += json_text(nlohmann::ordered_json(key)) + ":";
      append_json(out, member);
    }
    out += object ? '}' : ']';
  }
}

}  // namespace

std::string exact_json_text(const nlohmann::ordered_json& value) {
  std::string out;
  append_json(out, value);
  return out;
}

std::string with_quoted_literals(std::string text) {
  constexpr std::array<std::string_view, 3> kLiterals{"-Infinity", "Infinity", "NaN"};
  if (text.find("Infinity") == text.npos && text.find("NaN") == text.npos) return text;
  std::string quoted;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = std::string_view(text).substr(at);
    const auto literal =
        in_string ? kLiterals.end()
                  : std::find_if(kLiterals.begin(), kLiterals.end(),
                                 [&](std::string_view name) { return rest.starts_with(name); });
    if (literal != kLiterals.end()) {
      quoted.append("\"").append(*literal).append("\"");
      at += literal->size();
      continue;
    }
    if (rest[0] == '"') in_string = !in_string;
    const std::size_t bytes = in_string && rest[0] == '\\' && rest.size() > 1 ? 2 : 1;
    quoted.append(rest.substr(0, bytes));
    at += bytes;
  }
  return quoted;
}

nlohmann::json read_json(const std::filesystem::path& file, std::uint64_t most_bytes, FileKind kind,
                         const std::stop_token& stop) {
  std::string text = read_file(file, most_bytes, kind, stop);
  if (kind == FileKind::kOfModel) text = with_quoted_literals(std::move(text));
  return in_context("reading " + file.string(), [&] { return parse_json(text); });
}

}  // namespace canopy
