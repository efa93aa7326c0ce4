#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/server/replies/api_error.h"

namespace canopy::server {

/// Reads the members of a client's object, each by its type; null counts as absent. What nobody
/// asked for is refused at the end by its name. Throws ApiError 400 naming the member.
class Fields {
 public:
  using Json = nlohmann::ordered_json;
  /// `prefix`: where the object itself stands, "stream_options.", say.
  explicit Fields(const Json& object, std::string prefix = {});

  const Json* any(const std::string& name);  // nullptr if absent
  std::optional<bool> flag(const std::string& name);
  std::optional<int> integer(const std::string& name, int least, int most);
  std::optional<std::int64_t> whole(const std::string& name);
  std::optional<double> number(const std::string& name, double least, double most);
  std::optional<std::string> text(const std::string& name);
  /// Members that mean nothing here, whatever they hold.
  void pass_over(std::initializer_list<const char*> names);
  void refuse_others() const;
  /// Somebody has read it, or passed over it.
  bool knows(const std::string& name) const { return known_.contains(name); }

  [[noreturn]] void fail(const std::string& name, const std::string& what) const;

 private:
  const Json& object_;
  std::string prefix_;
  std::set<std::string> known_;
};

}  // namespace canopy::server
