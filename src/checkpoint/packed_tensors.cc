#include "src/checkpoint/packed_tensors.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/error.h"
#include "src/base/formats/packed_format.h"
#include "src/base/json.h"
#include "src/base/utf8.h"
#include "src/checkpoint/header_reader.h"
#include "src/checkpoint/readers.h"

namespace canopy {

namespace {

using nlohmann::json;

constexpr std::string_view kChecksumPrefix = "xxh3:";
constexpr std::size_t kChecksumDigits = 16;

std::string checksum_text(std::uint64_t checksum) {
  std::array<char, kChecksumDigits> digits{};
  digits.fill('0');
  std::array<char, kChecksumDigits> value{};
  const auto end = std::to_chars(value.begin(), value.end(), checksum, 16).ptr;
  std::copy_backward(value.data(), end, digits.end());
  return std::string(kChecksumPrefix) + std::string(digits.data(), digits.size());
}

std::uint64_t parse_checksum(const json& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    std::uint64_t checksum = 0;
    const char* const begin = text.data() + kChecksumPrefix.size();
    const char* const end = text.data() + text.size();
    if (text.starts_with(kChecksumPrefix) &&
        text.size() == kChecksumPrefix.size() + kChecksumDigits) {
      const auto [at, error] = std::from_chars(begin, end, checksum, 16);
      if (error == std::errc() && at == end) return checksum;
    }
  }
  throw Error("its checksum is not 'xxh3:' and 16 hexadecimal digits");
}

/// The format of blocks by rows that a description names; null for another.
const WeightFormat* find_rows(const json& description) {
  for (const WeightFormat& format : kPackedRows)
    if (description.at("codec") == format.name) return &format;
  return nullptr;
}

const PackedFormat& format_of(const json& description) {
  const json& codec = description.at("codec");
  if (codec.is_string())
    if (const PackedFormat* const format = find_codec(codec.get_ref<const std::string&>()))
      return *format;
  throw Error("codec " + in_quotes(codec.is_string() ? codec.get<std::string>() : codec.dump()) +
              " is not known; a newer version of Canopy may have written this file, and its own "
              "`canopy unpack` reads it");
}

std::vector<std::int64_t> parse_shape(const json& description) {
  // Far above any model; the product fits 63 bits.
  constexpr std::int64_t kMostExtent = std::int64_t{1} << 31;
  const auto shape = description.find("shape");
  std::vector<std::int64_t> extents;
  if (shape != description.end() && shape->is_array())
    for (const json& extent : *shape)
      if (const auto value = integer_in<std::int64_t>(extent);
          value && *value >= 0 && *value <= kMostExtent)
        extents.push_back(*value);
  if (extents.size() != 2 || shape->size() != 2 || extents[1] == 0)
    throw Error("its shape is not [rows, columns]");
  return extents;
}

/// The stored tensors of a file by name, each taken once.
class Stored {
 public:
  explicit Stored(std::vector<TensorEntry> tensors) {
    for (TensorEntry& tensor : tensors) {
      std::string name = tensor.name;
      by_name_.emplace(std::move(name), std::move(tensor));
    }
  }
  TensorEntry take(const std::string& name, DType dtype) {
    const auto at = by_name_.find(name);
    if (at == by_name_.end()) throw Error("its part " + in_quotes(name) + " is missing");
    TensorEntry tensor = std::move(at->second);
    by_name_.erase(at);
    require_known_dtype(tensor);
    if (tensor.dtype != dtype || tensor.shape.size() != 1)
      throw Error("its part " + in_quotes(name) + " is " + canopy::name(tensor.dtype) + " " +
                  to_string(tensor.shape) + ", not a vector of " + canopy::name(dtype));
    return tensor;
  }
  TensorEntry* find(const std::string& name) {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? nullptr : &at->second;
  }
  /// Returns what was not taken.
  std::vector<TensorEntry> rest() && {
    std::vector<TensorEntry> tensors;
    for (auto& [name, tensor] : by_name_) {
      const bool bytes =
          !tensor.foreign_dtype && (tensor.dtype == DType::kU8 || tensor.dtype == DType::kU32);
      if (bytes && name.starts_with(packed::kPadding)) continue;
      if (bytes) tensor.foreign_dtype = canopy::name(tensor.dtype);
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  }

 private:
  std::map<std::string, TensorEntry> by_name_;
};

/// One matrix in blocks by rows.
TensorEntry rows_entry(const std::string& name, const json& description, const WeightFormat& format,
                       Stored& stored) {
  TensorEntry tensor = stored.take(name + std::string(packed::kPayload), DType::kU8);
  tensor.name = name;
  tensor.dtype = format.dtype;
  tensor.shape = parse_shape(description);
  if (const std::uint64_t bytes = tensor_bytes(tensor.dtype, tensor.shape); bytes != tensor.bytes)
    throw Error("it has " + std::to_string(tensor.bytes) + " bytes, but " +
                to_string(tensor.shape) + " of " + format.name + " takes " + std::to_string(bytes));
  return tensor;
}

std::vector<std::byte> read_bytes(const TensorEntry& part, HeaderReader& reader) {
  // The file has them, so this allocates no more than the file has.
  std::vector<std::byte> bytes(static_cast<std::size_t>(part.bytes));
  reader.skip_to(part.offset);
  reader.read(bytes.data(), bytes.size());
  return bytes;
}

/// One matrix whose columns have their group each; null for a codec of another kind.
std::optional<TensorEntry> grouped_entry(const std::string& name, const json& description,
                                         Stored& stored, HeaderReader& reader) {
  for (const GroupedFormat& format : kGroupedFormats) {
    if (description.at("codec") != format.codec) continue;
    TensorEntry tensor = stored.take(name + std::string(packed::kPayload), DType::kU8);
    const TensorEntry groups = stored.take(name + std::string(packed::kGroups), DType::kU8);
    tensor.name = name;
    tensor.dtype = format.dtype;
    tensor.shape = parse_shape(description);
    tensor.companion = {*format.companion, read_bytes(groups, reader), tensor.shape[0],
                        tensor.shape[1], tensor.bytes};
    return tensor;
  }
  return std::nullopt;
}

/// One packed matrix. Of FP8 it is what the codec's name says until its scales are joined with it
/// (quantized/fp8_tensors.h): where its rows begin is the only tensor of its TensorEntry::scales.
TensorEntry packed_entry(const std::string& name, const json& description, Stored& stored,
                         HeaderReader& reader) {
  const PackedFormat& format = format_of(description);
  TensorEntry tensor = stored.take(name + std::string(packed::kPayload), DType::kU8);
  const TensorEntry rows = stored.take(name + std::string(packed::kRowOffsets), DType::kU32);
  tensor.name = name;
  tensor.dtype = format.dtype;
  tensor.shape = parse_shape(description);
  if (rows.shape[0] != tensor.shape[0] + 1)
    throw Error("it has " + std::to_string(tensor.shape[0]) + " rows, but " +
                std::to_string(rows.shape[0]) + " offsets, which are one more");
  if (find_fp8_format(format.plain) != nullptr) {
    tensor.foreign_dtype = format.codec;
    tensor.scales = {rows};
  } else {
    tensor.companion = {*format.companion, read_bytes(rows, reader), tensor.shape[0],
                        tensor.shape[1], tensor.bytes};
  }
  return tensor;
}

}  // namespace

std::string packed::to_text(const std::vector<std::pair<std::string, Description>>& tensors) {
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  for (const auto& [name, tensor] : tensors) {
    nlohmann::ordered_json& one = all[name];
    if (!tensor.codec.empty()) one = {{"codec", tensor.codec}, {"shape", tensor.shape}};
    one["checksum"] = checksum_text(tensor.checksum);
  }
  return all.dump();
}

std::vector<TensorEntry> with_packed_tensors(std::vector<TensorEntry> stored,
                                             const std::optional<std::string>& descriptions,
                                             const std::filesystem::path& file) {
  Stored tensors(std::move(stored));
  std::vector<TensorEntry> result;
  if (descriptions) {
    const json all = in_context("reading the key 'canopy.tensors' of the metadata",
                                [&] { return parse_json(*descriptions); });
    if (!all.is_object()) throw Error("the key 'canopy.tensors' of the metadata is not an object");
    HeaderReader reader(file, std::numeric_limits<std::uint64_t>::max());
    for (const auto& [name, description] : all.items())
      in_context("reading packed tensor " + in_quotes(name), [&, &n = name, &d = description] {
        if (!d.is_object()) throw Error("its description is not an object");
        const std::uint64_t checksum = parse_checksum(d.value("checksum", json()));
        if (d.contains("codec")) {
          if (const WeightFormat* const rows = find_rows(d))
            result.push_back(rows_entry(n, d, *rows, tensors));
          else if (auto grouped = grouped_entry(n, d, tensors, reader))
            result.push_back(*std::move(grouped));
          else
            result.push_back(packed_entry(n, d, tensors, reader));
          result.back().checksum = checksum;
        } else if (TensorEntry* const plain = tensors.find(n)) {
          plain->checksum = checksum;
        } else {
          throw Error("it is described, but not stored");
        }
      });
  }
  for (TensorEntry& tensor : std::move(tensors).rest()) result.push_back(std::move(tensor));
  return result;
}

}  // namespace canopy
