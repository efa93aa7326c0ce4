#include "offload/json_file.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "offload/header_reader.h"
#include "offload/readers.h"
#include "src/base/error.h"

namespace canopy {

using nlohmann::json;

nlohmann::json read_json(const std::filesystem::path& file) {
  // A parsed value takes up to 30 times its text; the indexes of the largest models have 200 KB.
  constexpr std::uint64_t kMostBytes = 4u << 20;
  constexpr std::size_t kMostDepth = 32;
  return in_context("reading " + file.string(), [&] {
    HeaderReader reader(file, kMostBytes);
    const std::string text = reader.text(reader.file_bytes());
    std::vector<std::set<std::string>> keys;  // of each array or object that is open
    const auto check = [&](int, json::parse_event_t event, json& parsed) {
      switch (event) {
        case json::parse_event_t::object_start:
        case json::parse_event_t::array_start:
          if (keys.size() == kMostDepth)
            throw Error("nested deeper than " + std::to_string(kMostDepth) + " levels");
          keys.emplace_back();
          break;
        case json::parse_event_t::object_end:
        case json::parse_event_t::array_end:
          keys.pop_back();
          break;
        case json::parse_event_t::key:
          if (!keys.back().insert(parsed.get<std::string>()).second)
            throw Error("key " + in_quotes(parsed.get<std::string>()) + " is given twice");
          break;
        case json::parse_event_t::value:
          break;
      }
      return true;
    };
    try {
      return json::parse(text, check);
    } catch (const json::exception& e) {
      throw Error(std::string("not valid JSON: ") + e.what());
    }
  });
}

}  // namespace canopy
