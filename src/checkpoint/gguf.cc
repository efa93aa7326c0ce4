// The GGUF container, versions 2 and 3: magic, version, counts, typed key/values, tensor infos,
// then the data at a multiple of general.alignment.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "src/base/error.h"
#include "src/base/formats/weight_format.h"
#include "src/base/utf8.h"
#include "src/checkpoint/header_reader.h"
#include "src/checkpoint/readers.h"

namespace canopy {

namespace {

// The largest vocabularies with their merges take 20 MB.
constexpr std::uint64_t kMostHeaderBytes = 64u << 20;
constexpr std::uint64_t kMostNameBytes = 64, kMostKeyBytes = 65535;
constexpr std::uint32_t kMostAxes = 4;

enum class ValueType : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

struct TypeName {
  std::uint32_t type;
  const char* name;
};
/// ggml's types that are not read, so that the error can say which it is.
constexpr std::array kOtherTypes{
    TypeName{9, "Q8_1"},   TypeName{15, "Q8_K"}, TypeName{24, "I8"},   TypeName{25, "I16"},
    TypeName{26, "I32"},   TypeName{27, "I64"},  TypeName{28, "F64"},  TypeName{34, "TQ1_0"},
    TypeName{35, "TQ2_0"}, TypeName{41, "Q1_0"}, TypeName{42, "Q2_0"},
};

DType parse_type(std::uint32_t type) {
  for (const WeightFormat& known : kWeightFormats)
    if (known.gguf_id == type && type != format::kNotInGguf) return known.dtype;
  std::string name = "number " + std::to_string(type);
  for (const TypeName& other : kOtherTypes)
    if (other.type == type) name = other.name;
  throw Error("weights of ggml type " + name + " are not supported; Canopy reads " +
              names_of(GgufFormats()) + ": take the model in a file of one of these");
}

template <class T>
std::int64_t checked_integer(T value) {
  if constexpr (std::is_same_v<T, std::uint64_t>)
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      throw Error("the integer " + std::to_string(value) + " does not fit 63 bits");
  return static_cast<std::int64_t>(value);
}

bool checked_bool(std::uint8_t value) {
  if (value > 1) throw Error("a boolean has the value " + std::to_string(value));
  return value == 1;
}

/// `count` numbers of type T, as Out.
template <class T, class Out>
std::vector<Out> read_numbers(HeaderReader& reader, std::uint64_t count) {
  reader.require_left(count, sizeof(T));
  std::vector<T> raw(count);
  reader.read(raw.data(), count * sizeof(T));
  if constexpr (std::is_same_v<T, Out>) return raw;
  std::vector<Out> values(count);
  std::transform(raw.begin(), raw.end(), values.begin(), [](T value) {
    if constexpr (std::is_integral_v<T>) {
      if (!std::in_range<Out>(value))
        throw Error("the integer " + std::to_string(value) + " does not fit 32 bits");
    }
    return static_cast<Out>(value);
  });
  return values;
}

std::string read_string(HeaderReader& reader) {
  return reader.text(reader.number<std::uint64_t>());
}

Metadata::Value read_array(HeaderReader& reader) {
  const auto type = static_cast<ValueType>(reader.number<std::uint32_t>());
  const auto count = reader.number<std::uint64_t>();
  switch (type) {
    case ValueType::kU8:
      return read_numbers<std::uint8_t, std::int32_t>(reader, count);
    case ValueType::kI8:
      return read_numbers<std::int8_t, std::int32_t>(reader, count);
    case ValueType::kU16:
      return read_numbers<std::uint16_t, std::int32_t>(reader, count);
    case ValueType::kI16:
      return read_numbers<std::int16_t, std::int32_t>(reader, count);
    case ValueType::kU32:
      return read_numbers<std::uint32_t, std::int32_t>(reader, count);
    case ValueType::kI32:
      return read_numbers<std::int32_t, std::int32_t>(reader, count);
    case ValueType::kU64:
      return read_numbers<std::uint64_t, std::int32_t>(reader, count);
    case ValueType::kI64:
      return read_numbers<std::int64_t, std::int32_t>(reader, count);
    case ValueType::kF32:
      return read_numbers<float, float>(reader, count);
    case ValueType::kF64:
      return read_numbers<double, float>(reader, count);
    case ValueType::kBool: {
      auto values = read_numbers<std::uint8_t, std::int32_t>(reader, count);
      for (const std::int32_t value : values) checked_bool(static_cast<std::uint8_t>(value));
      return values;
    }
    case ValueType::kString: {
      reader.require_left(count, sizeof(std::uint64_t));
      std::vector<std::string> values(count);
      for (std::string& value : values) value = read_string(reader);
      return values;
    }
    case ValueType::kArray:
      throw Error("an array of arrays is not supported");
  }
  throw Error("array element type " + std::to_string(static_cast<std::uint32_t>(type)) +
              " is unknown");
}

Metadata::Value read_value(HeaderReader& reader) {
  const auto type = static_cast<ValueType>(reader.number<std::uint32_t>());
  switch (type) {
    case ValueType::kU8:
      return checked_integer(reader.number<std::uint8_t>());
    case ValueType::kI8:
      return checked_integer(reader.number<std::int8_t>());
    case ValueType::kU16:
      return checked_integer(reader.number<std::uint16_t>());
    case ValueType::kI16:
      return checked_integer(reader.number<std::int16_t>());
    case ValueType::kU32:
      return checked_integer(reader.number<std::uint32_t>());
    case ValueType::kI32:
      return checked_integer(reader.number<std::int32_t>());
    case ValueType::kU64:
      return checked_integer(reader.number<std::uint64_t>());
    case ValueType::kI64:
      return checked_integer(reader.number<std::int64_t>());
    case ValueType::kF32:
      return static_cast<double>(reader.number<float>());
    case ValueType::kF64:
      return reader.number<double>();
    case ValueType::kBool:
      return checked_bool(reader.number<std::uint8_t>());
    case ValueType::kString:
      return read_string(reader);
    case ValueType::kArray:
      return read_array(reader);
  }
  throw Error("value type " + std::to_string(static_cast<std::uint32_t>(type)) + " is unknown");
}

Metadata read_metadata(HeaderReader& reader, std::uint64_t count) {
  Metadata metadata;
  std::set<std::string> keys;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto key_bytes = reader.number<std::uint64_t>();
    if (key_bytes == 0 || key_bytes > kMostKeyBytes)
      throw Error("metadata key " + std::to_string(i) + " has " + std::to_string(key_bytes) +
                  " bytes, allowed are 1 to " + std::to_string(kMostKeyBytes));
    const std::string key = reader.text(key_bytes);
    if (!keys.insert(key).second) throw Error("metadata key " + in_quotes(key) + " is given twice");
    in_context("reading metadata key " + in_quotes(key),
               [&] { metadata.set(key, read_value(reader)); });
  }
  return metadata;
}

/// The offset is still relative to the data.
TensorEntry read_tensor_info(HeaderReader& reader, std::uint64_t index) {
  TensorEntry tensor{};
  const auto name_bytes = reader.number<std::uint64_t>();
  if (name_bytes == 0 || name_bytes > kMostNameBytes)
    throw Error("the name of tensor " + std::to_string(index) + " has " +
                std::to_string(name_bytes) + " bytes, allowed are 1 to " +
                std::to_string(kMostNameBytes));
  tensor.name = reader.text(name_bytes);
  in_context("reading the info of tensor " + in_quotes(tensor.name), [&] {
    const auto axes = reader.number<std::uint32_t>();
    if (axes == 0 || axes > kMostAxes)
      throw Error(std::to_string(axes) + " axes, allowed are 1 to " + std::to_string(kMostAxes));
    for (std::uint32_t axis = 0; axis < axes; ++axis)
      tensor.shape.push_back(checked_integer(reader.number<std::uint64_t>()));
    std::reverse(tensor.shape.begin(), tensor.shape.end());  // stored innermost first
    tensor.dtype = parse_type(reader.number<std::uint32_t>());
    tensor.bytes = tensor_bytes(tensor.dtype, tensor.shape);
    tensor.offset = reader.number<std::uint64_t>();
  });
  return tensor;
}

std::uint64_t data_alignment(const Metadata& metadata) {
  constexpr std::int64_t kDefault = 32, kMost = 1 << 20;
  if (!metadata.contains("general.alignment")) return kDefault;
  const auto* alignment = metadata.find<std::int64_t>("general.alignment");
  if (!alignment) throw Error("metadata key 'general.alignment' is not an integer");
  if (*alignment < 1 || *alignment > kMost ||
      !std::has_single_bit(static_cast<std::uint64_t>(*alignment)))
    throw Error("metadata key 'general.alignment' is " + std::to_string(*alignment) +
                ", not a power of two up to " + std::to_string(kMost));
  return static_cast<std::uint64_t>(*alignment);
}

void require_version(HeaderReader& reader) {
  std::array<char, 4> magic{};
  if (reader.file_bytes() >= magic.size()) reader.read(magic.data(), magic.size());
  if (std::memcmp(magic.data(), "GGUF", magic.size()) != 0)
    throw Error(
        "the file does not begin with 'GGUF'; a model is a Hugging Face directory or a GGUF file");
  const auto version = reader.number<std::uint32_t>();
  if (version == 2 || version == 3) return;
  if (__builtin_bswap32(version) == 2 || __builtin_bswap32(version) == 3)
    throw Error("a big-endian GGUF file; only little-endian ones are read");
  throw Error("GGUF version " + std::to_string(version) + " is not supported; 2 and 3 are");
}

}  // namespace

GgufHeader read_gguf(const std::filesystem::path& file, Holes holes) {
  return in_context("reading " + file.string(), [&] {
    HeaderReader reader(file, kMostHeaderBytes);
    require_version(reader);
    const auto tensor_count = reader.number<std::uint64_t>();
    const auto key_count = reader.number<std::uint64_t>();
    reader.require_left(tensor_count, 8 + 1 + 4 + 8 + 4 + 8);  // the smallest tensor info
    reader.require_left(key_count, 8 + 1 + 4 + 1);             // the smallest key and value
    GgufHeader header{read_metadata(reader, key_count), {}};
    for (std::uint64_t i = 0; i < tensor_count; ++i)
      header.tensors.push_back(read_tensor_info(reader, i));

    const std::uint64_t alignment = data_alignment(header.metadata);
    const std::uint64_t data = (reader.position() + alignment - 1) / alignment * alignment;
    std::uint64_t most = 0;
    const TensorEntry* cut = nullptr;  // the first whose end is missing
    for (TensorEntry& tensor : header.tensors) {
      if (tensor.offset % alignment != 0)
        throw Error("tensor " + in_quotes(tensor.name) + " begins at byte " +
                    std::to_string(tensor.offset) + " of the data, not a multiple of " +
                    std::to_string(alignment));
      std::uint64_t end = 0;
      if (__builtin_add_overflow(tensor.offset, data, &tensor.offset) ||
          __builtin_add_overflow(tensor.offset, tensor.bytes, &end))
        throw Error("the end of tensor " + in_quotes(tensor.name) + " overflows 64 bits");
      most = std::max(most, end);
      if (end > reader.file_bytes() && (cut == nullptr || tensor.offset < cut->offset))
        cut = &tensor;
    }
    if (cut != nullptr)
      throw Error("the file is truncated or damaged: its tensors take " + std::to_string(most) +
                  " bytes, and it has " + std::to_string(reader.file_bytes()) + ": " +
                  std::to_string(most - reader.file_bytes()) + " are missing, from tensor " +
                  in_quotes(cut->name) + " on; fetch it again");
    require_disjoint(header.tensors);
    if (holes == Holes::kRefused) refuse_holes(file, header.tensors);
    return header;
  });
}

}  // namespace canopy
