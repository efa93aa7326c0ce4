// Changes a safetensors file as the structure that it is: the members of its header, one at a time,
// with a length that fits and data that reach as far as the offsets say.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/fuzz/mutation.h"

namespace canopy::fuzz {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::size_t kMostData = 1 << 16;

Json odd_value(Random& random) {
  static constexpr const char* kValues[] = {"null",
                                            "true",
                                            "[]",
                                            "{}",
                                            "-1",
                                            "0",
                                            "1.5",
                                            "1e99",
                                            "\"\"",
                                            "\"U8\"",
                                            "\"F8\"",
                                            "[1,[2]]",
                                            "\"U32\"",
                                            "\"F32\"",
                                            "\"BF16\"",
                                            "\"I64\"",
                                            "18446744073709551615",
                                            "9223372036854775808",
                                            "[0]",
                                            "[1,2,3,4,5,6,7,8,9]"};
  return Json::parse(kValues[below(std::size(kValues), random)]);
}

void change_number(Json& number, Random& random) {
  const std::uint64_t value = number.is_number_unsigned() ? number.get<std::uint64_t>() : 0;
  number = odd_number(value, random);
}

/// The member `name` of an object, at random one of its values or the thing itself.
void change_inside(Json& value, Random& random, int depth = 0) {
  if (value.is_structured() && !value.empty() && depth < 4 && random() % 8 != 0) {
    auto at = value.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(below(value.size(), random)));
    if (random() % 16 == 0)
      value.erase(at);
    else
      change_inside(*at, random, depth + 1);
  } else if (value.is_number_integer()) {
    change_number(value, random);
  } else if (value.is_string() && random() % 2) {
    const std::string text = value.get<std::string>();
    const Json inner = Json::parse(text, nullptr, false);
    if (inner.is_structured()) {  // the descriptions of packed tensors are JSON in a text
      Json changed = inner;
      change_inside(changed, random, 1);
      value = changed.dump(-1, ' ', false, Json::error_handler_t::replace);
    } else {
      value = mutated(text);
    }
  } else {
    value = odd_value(random);
  }
}

/// Two tensors of a header.
std::pair<Json*, Json*> two_of(Json& header, Random& random) {
  const auto any = [&]() -> Json* {
    auto at = header.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(below(header.size(), random)));
    return at->is_object() && at->contains("data_offsets") ? &*at : nullptr;
  };
  return {any(), any()};
}

void change(Json& header, Random& random) {
  if (header.empty()) return;
  const auto [one, other] = two_of(header, random);
  switch (random() % 6) {
    case 0:  // overlaps, and gaps
      if (one != nullptr && other != nullptr)
        (*one)["data_offsets"] = Json((*other)["data_offsets"]);
      break;
    case 1:  // of no bytes, inside of another
      if (one != nullptr && other != nullptr && (*other)["data_offsets"].is_array() &&
          (*other)["data_offsets"].size() == 2) {
        const Json begin = (*other)["data_offsets"][random() % 2];
        (*one)["shape"] = {0};
        (*one)["data_offsets"] = {begin, begin};
      }
      break;
    case 2:
      if (one != nullptr) header[mutated("w.packed")] = Json(*one);
      break;
    default:
      change_inside(header, random);
  }
}

std::size_t data_of(const Json& header, std::size_t otherwise) {
  std::size_t end = 0;
  for (const Json& tensor : header)
    if (tensor.is_object() && tensor.contains("data_offsets") && tensor["data_offsets"].is_array())
      for (const Json& offset : tensor["data_offsets"])
        if (offset.is_number_unsigned() && offset.get<std::uint64_t>() <= kMostData)
          end = std::max(end, offset.get<std::size_t>());
  return end == 0 ? otherwise : end;
}

}  // namespace
}  // namespace canopy::fuzz

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  using namespace canopy::fuzz;
  Random random(seed);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  std::uint64_t length = 0;
  if (size >= sizeof length) std::memcpy(&length, data, sizeof length);
  if (size < sizeof length || length > size - sizeof length || random() % 8 == 0)
    return LLVMFuzzerMutate(data, size, most);
  std::string text(input.substr(sizeof length, length));
  std::string rest(input.substr(sizeof length + length));
  Json header = Json::parse(text, nullptr, false);
  if (!header.is_object() || random() % 8 == 0) {
    text = mutated(text);
  } else {
    for (std::size_t changes = 1 + below(3, random); changes > 0; --changes) {
      if (random() % 8 == 0)
        rest = mutated(rest);
      else
        change(header, random);
    }
    text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (random() % 8 != 0) rest.resize(data_of(header, rest.size()));
  }
  length = random() % 16 == 0 ? odd_number(text.size(), random) : text.size();
  std::string out(reinterpret_cast<const char*>(&length), sizeof length);
  return give(out + text + rest, data, most);
}
