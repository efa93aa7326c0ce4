// The safetensors container: 8 bytes of header length, a JSON header
// {"name": {"dtype": "BF16", "shape": [..], "data_offsets": [begin, end]}, ...}, then the data,
// which the tensors must fill without gap or overlap. What a packed file adds: packed_tensors.h.
#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/error.h"
#include "src/base/formats/weight_format.h"
#include "src/base/json.h"
#include "src/base/utf8.h"
#include "src/checkpoint/fingerprint.h"
#include "src/checkpoint/header_reader.h"
#include "src/checkpoint/packed_tensors.h"
#include "src/checkpoint/readers.h"

namespace canopy {

namespace {

using nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
// A shard of a dense model has a few hundred tensors of about 120 bytes of header each.
constexpr std::uint64_t kMostHeaderBytes = 16u << 20;
constexpr std::size_t kMostAxes = 8;

/// Nothing for a dtype that is not read.
std::optional<DType> parse_dtype(const std::string& name) {
  for (const WeightFormat& format : kWeightFormats)
    if (format.safetensors_name != nullptr && format.safetensors_name == name) return format.dtype;
  for (const DType part_of_packed : {DType::kU8, DType::kU32})
    if (name == canopy::name(part_of_packed)) return part_of_packed;
  return std::nullopt;
}

/// Receives the header as events, so that a hostile one never becomes a tree in memory.
/// A state machine over exactly the form above: everything else is an Error.
class HeaderEvents final : public json::json_sax_t {
 public:
  std::vector<TensorEntry> take_tensors() { return std::exchange(tensors_, {}); }
  const std::optional<std::string>& descriptions() const { return descriptions_; }
  const std::string& source() const { return source_; }

  bool start_object(std::size_t) override {
    if (depth_ == 0) {
      depth_ = 1;
    } else if (depth_ == 1) {
      depth_ = 2;
      begin_ = end_ = {};
      seen_.clear();
      tensor_.shape.clear();
    } else {
      fail("an object where a value belongs");
    }
    return true;
  }
  bool key(std::string& text) override {
    if (depth_ == 1) {
      tensor_.name = text;
      return true;
    }
    field_ = text;
    if (in_metadata()) return true;
    if (text != "dtype" && text != "shape" && text != "data_offsets")
      fail("unknown field " + in_quotes(text));
    if (std::find(seen_.begin(), seen_.end(), text) != seen_.end())
      fail("field " + in_quotes(text) + " is given twice");
    seen_.push_back(text);
    return true;
  }
  bool string(std::string& text) override {
    if (depth_ == 2 && !in_array_ && in_metadata()) {
      if (field_ == packed::kDescriptions) descriptions_ = text;
      if (field_ == kSourceFingerprint) source_ = text;
      return true;
    }
    if (depth_ != 2 || in_array_ || field_ != "dtype") fail("an unexpected string");
    const std::optional<DType> dtype = parse_dtype(text);
    tensor_.dtype = dtype.value_or(DType::kU8);
    tensor_.foreign_dtype = dtype ? std::nullopt : std::optional(text);
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_array_ || in_metadata() || field_ == "dtype") fail("an unexpected array");
    in_array_ = true;
    offsets_ = 0;
    return true;
  }
  bool end_array() override {
    in_array_ = false;
    if (field_ == "data_offsets" && offsets_ != 2) fail("data_offsets is not a pair");
    return true;
  }
  bool number_unsigned(json::number_unsigned_t value) override {
    if (!in_array_) fail("an unexpected number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      fail("the number " + std::to_string(value) + " is too large");
    if (field_ == "shape") {
      if (tensor_.shape.size() == kMostAxes)
        fail("more than " + std::to_string(kMostAxes) + " axes");
      tensor_.shape.push_back(static_cast<std::int64_t>(value));
    } else {
      if (offsets_ == 2) fail("data_offsets is not a pair");
      (offsets_++ == 0 ? begin_ : end_) = value;
    }
    return true;
  }
  bool end_object() override {
    if (--depth_ != 1 || in_metadata()) return true;
    if (seen_.size() != 3) fail("dtype, shape or data_offsets is missing");
    if (begin_ > end_) fail("data_offsets run backwards");
    // The size of a foreign type is not known, unless it has bytes: whoever needs the tensor
    // refuses the type by name.
    const std::string type = tensor_.foreign_dtype.value_or(name(tensor_.dtype));
    const std::uint64_t expected = in_context(where(), [&] {
      return tensor_.foreign_dtype && !type.starts_with("F8_")
                 ? end_ - begin_
                 : tensor_bytes(tensor_.dtype, tensor_.shape);
    });
    if (end_ - begin_ != expected)
      fail("data_offsets hold " + std::to_string(end_ - begin_) + " bytes, but " +
           (tensor_.foreign_dtype ? in_quotes(type) : type) + " " + to_string(tensor_.shape) +
           " takes " + std::to_string(expected));
    tensor_.offset = begin_;
    tensor_.bytes = expected;
    tensors_.push_back(tensor_);
    return true;
  }
  bool null() override { return fail("an unexpected null"); }
  bool boolean(bool) override { return fail("an unexpected boolean"); }
  bool number_integer(json::number_integer_t) override { return fail("a negative number"); }
  bool number_float(json::number_float_t, const std::string& text) override {
    return fail("the number " + in_quotes(text) + " is not a 64-bit integer");
  }
  bool binary(json::binary_t&) override { return fail("an unexpected binary value"); }
  bool parse_error(std::size_t at, const std::string&, const json::exception& e) override {
    throw Error("the header is not valid JSON at byte " + std::to_string(kLengthBytes + at) + ": " +
                syntax_error(e));
  }

 private:
  bool in_metadata() const { return tensor_.name == "__metadata__"; }
  std::string where() const {
    return depth_ == 0 ? "reading the header"
                       : "reading the header of tensor " + in_quotes(tensor_.name);
  }
  [[noreturn]] bool fail(const std::string& what) const { throw Error(what).with(where()); }

  int depth_ = 0;
  bool in_array_ = false;
  std::string field_;
  std::vector<std::string> seen_;
  std::uint64_t begin_ = 0, end_ = 0;
  int offsets_ = 0;
  TensorEntry tensor_{};
  std::vector<TensorEntry> tensors_;
  std::optional<std::string> descriptions_;
  std::string source_;
};

/// Contents of one file. Offsets count from its start.
struct FileTensors {
  std::vector<TensorEntry> tensors;
  std::string source;  // TensorIndex::source
};

/// Throws Error unless this is a fingerprint: it becomes part of the names of files.
void check_source(const std::string& source) {
  const bool good = source.empty() || (source.size() == 16 &&
                                       source.find_first_not_of("0123456789abcdef") == source.npos);
  if (!good)
    throw Error("the key '" + std::string(kSourceFingerprint) + "' of the metadata, " +
                in_quotes(source) + ", is not 16 hexadecimal digits");
}

FileTensors read_header(const std::filesystem::path& file, int file_index, Holes holes) {
  return in_context("reading " + file.string(), [&] {
    HeaderReader reader(file, kLengthBytes + kMostHeaderBytes);
    const auto header_bytes = reader.number<std::uint64_t>();
    const std::string header = reader.text(header_bytes);
    if (header.empty() || header[0] != '{')
      throw Error("the header does not begin with '{': this is not a safetensors file");
    HeaderEvents events;
    json::sax_parse(header, &events);
    const std::string source = events.source();
    std::vector<TensorEntry> tensors = events.take_tensors();
    for (TensorEntry& tensor : tensors) {
      tensor.file = file_index;
      tensor.offset += reader.position();  // both below 2^63
    }
    require_disjoint(tensors);
    std::uint64_t end = reader.position();
    for (const TensorEntry& tensor : tensors) {
      if (tensor.offset != end)
        throw Error("tensor " + in_quotes(tensor.name) + " begins at byte " +
                    std::to_string(tensor.offset) + " and leaves a gap after byte " +
                    std::to_string(end));
      end += tensor.bytes;
    }
    if (end != reader.file_bytes())
      throw Error(
          std::string(end > reader.file_bytes() ? "the file is truncated"
                                                : "the file has bytes of no tensor") +
          ": the header describes " + std::to_string(end) + " bytes, the file has " +
          std::to_string(reader.file_bytes()) +
          (end > reader.file_bytes()
               ? ": " + std::to_string(end - reader.file_bytes()) + " are missing"
               : "") +
          (tensors.empty() ? "" : "; the last tensor is " + in_quotes(tensors.back().name)));
    check_source(source);
    if (holes == Holes::kRefused) refuse_holes(file, tensors);
    return FileTensors{with_packed_tensors(std::move(tensors), events.descriptions(), file),
                       source};
  });
}

TensorIndex read_shards(const std::filesystem::path& directory,
                        const std::filesystem::path& index_file, Holes holes) {
  const json index = read_json(index_file, kMostIndexBytes, FileKind::kOfModel);
  return in_context("reading " + index_file.string(), [&] {
    if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
      throw Error("no object 'weight_map'");
    std::map<std::string, int> shards;  // name -> index into files
    TensorIndex result;
    for (const auto& [tensor, shard] : index["weight_map"].items()) {
      if (!shard.is_string())
        throw Error("the shard of tensor " + in_quotes(tensor) + " is not a name");
      const auto& file = shard.get_ref<const std::string&>();
      const bool plain = std::none_of(file.begin(), file.end(), [](char c) {
        return (c >= 0 && c < 0x20) || c == 0x7f;  // messages name files
      });
      if (!plain || file.empty() || file == "." || file == ".." || file.find('/') != file.npos ||
          file.find('\\') != file.npos || file.find('\0') != file.npos)
        throw Error("tensor " + in_quotes(tensor) + " is said to lie in " + in_quotes(file) +
                    "; a shard must be a file beside the index");
      if (shards.try_emplace(file, static_cast<int>(shards.size())).second) {
        result.files.push_back(directory / file);
      }
    }
    const json& weight_map = index["weight_map"];
    for (std::size_t i = 0; i < result.files.size(); ++i) {
      for (TensorEntry& tensor : read_header(result.files[i], static_cast<int>(i), holes).tensors) {
        const auto at = weight_map.find(tensor.name);
        if (at == weight_map.end())
          throw Error("tensor " + in_quotes(tensor.name) + " of " +
                      result.files[i].filename().string() + " is not in the index");
        if (shards.at(at->get<std::string>()) != tensor.file)
          throw Error("tensor " + in_quotes(tensor.name) + " lies in " +
                      result.files[i].filename().string() + ", but the index says " +
                      at->get<std::string>());
        result.tensors.push_back(std::move(tensor));
      }
    }
    require_disjoint(result.tensors);
    if (result.tensors.size() != weight_map.size()) {
      std::map<std::string_view, int> found;
      for (const TensorEntry& tensor : result.tensors) found[tensor.name] = 1;
      for (const auto& [tensor, shard] : weight_map.items())
        if (!found.count(tensor))
          throw Error("tensor " + in_quotes(tensor) + " is not in " + shard.get<std::string>() +
                      ", where the index says it lies");
    }
    return result;
  });
}

}  // namespace

TensorIndex read_safetensors_file(const std::filesystem::path& file, Holes holes) {
  FileTensors all = read_header(file, 0, holes);
  return {{file}, std::move(all.tensors), std::move(all.source)};
}

TensorIndex read_safetensors(const std::filesystem::path& directory, Holes holes) {
  const auto single = directory / "model.safetensors";
  const auto index = directory / "model.safetensors.index.json";
  std::error_code ignored;  // what cannot be reached counts as absent
  if (std::filesystem::exists(single, ignored)) return read_safetensors_file(single, holes);
  if (std::filesystem::exists(index, ignored)) return read_shards(directory, index, holes);
  throw Error(
      directory.string() + " has neither model.safetensors nor " +
      "model.safetensors.index.json; other weight formats must be converted to safetensors");
}

}  // namespace canopy
