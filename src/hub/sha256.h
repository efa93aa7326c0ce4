#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace canopy::hub {

/// SHA-256 of bytes that come in parts.
class Sha256 {
 public:
  Sha256();  // throws Error
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::string_view bytes);  // throws Error
  /// 64 hexadecimal digits; begins anew. Throws Error.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace canopy::hub
