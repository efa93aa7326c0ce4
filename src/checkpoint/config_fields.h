#pragma once
// Private to the readers of config.json.
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/checkpoint/families.h"

namespace canopy {

inline constexpr int kMostPositions = std::numeric_limits<int>::max();
/// Larger than any model's by far; products of two dimensions stay far below 2^63.
inline constexpr int kMostDim = 1 << 24;

/// Typed access to one object of the config; null counts as absent, as it does in transformers.
class Fields {
 public:
  explicit Fields(const nlohmann::json& object, std::string path = "")
      : object_(object), path_(std::move(path)) {
    if (!object_.is_object())
      throw Error((path_.empty() ? "the config" : "'" + path_ + "'") + " is not a JSON object");
  }
  const nlohmann::json* find(const char* key) const {
    const auto at = object_.find(key);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
  }
  const nlohmann::json& object() const { return object_; }
  bool given(const char* key) const { return object_.contains(key); }
  std::string name(const char* key) const {
    std::string text(1, '\'');  // appended: g++ 12 warns wrongly about sums of strings here
    if (!path_.empty()) text.append(path_).append(".");
    return text.append(key).append("'");
  }

  /// An integer in [least, most]; without it `fallback`, or an Error if there is none.
  int integer(const char* key, int most, std::optional<int> fallback = {}, int least = 1) const {
    const nlohmann::json* value = find(key);
    if (!value) {
      if (fallback) return *fallback;
      throw Error("key " + name(key) + " is missing");
    }
    if (!value->is_number_integer()) throw Error("key " + name(key) + " is not an integer");
    const std::optional<int> given = integer_in<int>(*value);
    if (!given || *given < least || *given > most)
      throw Error("key " + name(key) + " is " + value->dump() + ", outside " +
                  std::to_string(least) + " to " + std::to_string(most));
    return *given;
  }
  std::optional<double> number(const char* key) const {
    const nlohmann::json* value = find(key);
    if (!value) return {};
    if (!value->is_number()) throw Error("key " + name(key) + " is not a number");
    return value->get<double>();
  }
  double positive(const char* key, std::optional<double> fallback = {}) const {
    const auto value = number(key);
    if (!value && !fallback) throw Error("key " + name(key) + " is missing");
    const double result = value.value_or(fallback.value_or(0));
    constexpr auto kMost = std::numeric_limits<float>::max();  // arithmetic is in floats
    if (!(result > 0 && result <= static_cast<double>(kMost)))
      throw Error("key " + name(key) + " is not a positive number up to 3.4e38");
    return result;
  }
  bool flag(const char* key, bool fallback) const {
    const nlohmann::json* value = find(key);
    if (!value) return fallback;
    if (!value->is_boolean()) throw Error("key " + name(key) + " is not true or false");
    return value->get<bool>();
  }
  std::string text(const char* key, const char* fallback = "") const {
    const nlohmann::json* value = find(key);
    if (!value) return fallback;
    if (!value->is_string()) throw Error("key " + name(key) + " is not a string");
    return value->get<std::string>();
  }

 private:
  const nlohmann::json& object_;
  std::string path_;
};

/// Names of a decoder's sizes in a config.json. Without `hidden_dim` an MLP is four times as wide
/// as the model; `max_positions` counts where the config has none.
struct SizeKeys {
  const char* layers = "num_hidden_layers";
  const char* dim = "hidden_size";
  const char* hidden_dim = "intermediate_size";
  const char* heads = "num_attention_heads";
  const char* positions = "max_position_embeddings";
  std::optional<int> max_positions = {};
  bool tied_head = false;  // unless the config says otherwise
};
/// The sizes, the end tokens and the family's form. Throws Error naming the key.
ModelConfig read_sizes(const Fields& config, const Family& family, const SizeKeys& keys = {});

/// A value of a config for an error message.
inline std::string shown(const nlohmann::json& value) {
  constexpr bool kAsciiAlone = true;  // so that no character is cut, and none steers a terminal
  return value.dump(-1, ' ', kAsciiAlone).substr(0, 120);
}

/// Throws Error if the architectures that a config names are others than this class.
void require_class(const Fields& config, std::string_view name);

/// Throws Error if the window of attention, which is `fallback` where its key is absent and none
/// where it is null, hides anything.
void refuse_window(const Fields& config, int max_positions, std::optional<int> fallback);
/// Reads which layers have a window, where the table of kinds is of one with and one without, and
/// how wide it is.
void put_windows(const Fields& config, ModelConfig& model);
/// Gives all layers the window of `sliding_window`, which is `fallback` where the key is absent and
/// none where it is null, unless it hides nothing.
void put_uniform_window(const Fields& config, std::optional<int> fallback, ModelConfig& model);
/// Reads the rotary positions of a model whose sizes and windows are set, under either generation's
/// keys, with a note on what is taken otherwise. Throws Error naming the key.
void put_rope(const Fields& config, const Family& family, ModelConfig& model);
/// Throws Error if a config does not say how many heads of keys there are. Null means one for each
/// query head; transformers' other defaults would be a guess.
void require_kv_heads(const Fields& config);

/// Throws Error: this is not supported, and what is.
[[noreturn]] void refuse_config(const std::string& what);

}  // namespace canopy
