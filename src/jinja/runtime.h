#pragma once
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/jinja/limits.h"
#include "src/jinja/value.h"

namespace canopy::jinja {

/// The use that one render has made of its limits, and its place. Makes values that are paid for,
/// and outlives them all. One thread.
class Runtime {
 public:
  Runtime(const Limits& limits, std::string_view source, const std::tm& now)
      : limits_(limits), source_(source), now_(now) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// Throws TemplateError at the place that is evaluated.
  [[noreturn]] void fail(std::string message) const;
  /// All of these throw TemplateError where a limit is reached.
  void step(std::size_t count = 1);
  void read(std::size_t bytes) { step(bytes / 256); }
  /// Counts a pass over a text by character, which takes longer.
  void walk(std::size_t bytes) { step(bytes / 8); }
  void take(std::size_t bytes);
  void give_back(std::size_t bytes) { memory_ -= bytes; }
  /// Before memory is asked for that would be too much.
  void check_size(std::size_t count, std::size_t bytes_each) const;
  const Limits& limits() const { return limits_; }
  const std::tm& now() const { return now_; }

  Value string(std::string bytes, bool safe = false);
  Value list(std::vector<Value> items, ListKind kind = ListKind::kList);
  Value dict(std::vector<std::pair<Value, Value>> entries);
  Value name_space(std::vector<std::pair<std::string, Value>> members);
  Value bound(const Method& method, Value self);
  Value undefined(std::string why) const;
  /// The caller's variables, which the render does not pay for.
  Value from_json(const nlohmann::ordered_json& json);

  /// One evaluation, for as long as it takes: where it is, and how deep.
  class Evaluation {
   public:
    Evaluation(Runtime& runtime, std::uint32_t offset);
    ~Evaluation() { runtime_.depth_ -= 1, runtime_.offset_ = before_; }
    Evaluation(const Evaluation&) = delete;
    Evaluation& operator=(const Evaluation&) = delete;

   private:
    Runtime& runtime_;
    std::uint32_t before_;
  };

 private:
  Value from_json(const nlohmann::ordered_json& json, int depth);

  Limits limits_;
  std::string_view source_;
  std::tm now_;
  std::size_t steps_ = 0, memory_ = 0;
  int depth_ = 0;
  std::uint32_t offset_ = 0;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
};

/// Text on its way, paid for as it grows.
class Output {
 public:
  explicit Output(Runtime& runtime) : runtime_(&runtime), charge_(runtime) {}
  void append(std::string_view text);
  void append(char c) { append(std::string_view(&c, 1)); }
  std::size_t size() const { return text_.size(); }
  std::string take() && { return std::move(text_); }

 private:
  Runtime* runtime_;
  Charge charge_;
  std::string text_;
};

}  // namespace canopy::jinja
