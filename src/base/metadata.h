#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace canopy {

/// Typed key/values of a checkpoint: GGUF metadata, or config.json flattened with dots. Lets
/// src/text build a tokenizer from a GGUF file without knowing what a file is.
class Metadata {
 public:
  using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>,
                             std::vector<float>, std::vector<std::int32_t>>;
  void set(std::string key, Value value) {
    values_.insert_or_assign(std::move(key), std::move(value));
  }
  bool contains(std::string_view key) const { return values_.find(key) != values_.end(); }
  template <class T>
  const T* find(std::string_view key) const {  // nullptr if absent or of another type
    const auto it = values_.find(key);
    return it == values_.end() ? nullptr : std::get_if<T>(&it->second);
  }

 private:
  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace canopy
