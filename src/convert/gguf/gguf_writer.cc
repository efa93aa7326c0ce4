#include "src/convert/gguf/gguf_writer.h"

#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "src/base/error.h"
#include "src/base/formats/weight_format.h"

namespace canopy {

static_assert(std::endian::native == std::endian::little, "GGUF is little-endian");

namespace {

constexpr std::uint64_t kAlignment = 32;

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::uint64_t tensor_bytes(const GgufTensor& tensor) {
  std::uint64_t rows = 1;
  for (std::size_t axis = 0; axis + 1 < tensor.shape.size(); ++axis)
    rows *= static_cast<std::uint64_t>(tensor.shape[axis]);
  return rows * row_bytes(tensor.dtype, tensor.shape.back());
}

std::uint32_t type_code(DType dtype) {
  if (const WeightFormat* const known = find_format(dtype);
      known && known->gguf_id != format::kNotInGguf)
    return known->gguf_id;
  throw Error("this type of tensor is not written to GGUF files");
}

/// The bytes of a header, growing.
class Bytes {
 public:
  template <class T>
  void number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    std::array<char, sizeof value> raw;
    std::memcpy(raw.data(), &value, sizeof value);
    text_.append(raw.data(), raw.size());
  }
  void string(const std::string& value) {
    number<std::uint64_t>(value.size());
    text_ += value;
  }
  void value(const GgufValue& v) {
    std::visit([this](const auto& x) { typed(x); }, v);
  }
  std::string& text() { return text_; }

 private:
  enum Type : std::uint32_t { kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9 };
  void typed(bool x) {
    number<std::uint32_t>(kBool);
    number<std::uint8_t>(x ? 1 : 0);
  }
  void typed(std::uint32_t x) {
    number<std::uint32_t>(kU32);
    number(x);
  }
  void typed(float x) {
    number<std::uint32_t>(kF32);
    number(x);
  }
  void typed(const std::string& x) {
    number<std::uint32_t>(kString);
    string(x);
  }
  void array(Type type, std::size_t size) {
    number<std::uint32_t>(kArray);
    number<std::uint32_t>(type);
    number<std::uint64_t>(size);
  }
  void typed(const std::vector<std::string>& x) {
    array(kString, x.size());
    for (const std::string& s : x) string(s);
  }
  void typed(const std::vector<float>& x) {
    array(kF32, x.size());
    for (const float f : x) number(f);
  }
  void typed(const std::vector<std::int32_t>& x) {
    array(kI32, x.size());
    for (const std::int32_t i : x) number(i);
  }

  std::string text_;
};

std::string header_of(const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors) {
  Bytes header;
  header.text() = "GGUF";
  header.number<std::uint32_t>(3);
  header.number<std::uint64_t>(tensors.size());
  header.number<std::uint64_t>(metadata.size());
  for (const auto& [key, value] : metadata) {
    header.string(key);
    header.value(value);
  }
  std::uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    header.string(tensor.name);
    header.number(static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size)
      header.number(static_cast<std::uint64_t>(*size));
    header.number(type_code(tensor.dtype));
    header.number(offset);
    offset += aligned(tensor_bytes(tensor));
  }
  header.text().resize(aligned(header.text().size()), '\0');
  return header.text();
}

}  // namespace

std::uint64_t gguf_data_bytes(const std::vector<GgufTensor>& tensors) {
  std::uint64_t bytes = 0;
  for (const GgufTensor& tensor : tensors) bytes += aligned(tensor_bytes(tensor));
  return bytes;
}

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
                       std::vector<GgufTensor> tensors)
    : tensors_(std::move(tensors)) {
  require(!tensors_.empty(), "no tensors to write");
  const std::string header = header_of(metadata, tensors_);
  file_.emplace(path, header.size() + gguf_data_bytes(tensors_));
  file_->write(header);
  tensor_left_ = tensor_bytes(tensors_[0]);
}

void GgufWriter::write(std::string_view tensor, std::span<const std::byte> bytes) {
  if (tensor_ == tensors_.size() || tensors_[tensor_].name != tensor || bytes.size() > tensor_left_)
    throw Error("bytes of " + std::string(tensor) + " come out of order");
  file_->write(bytes);
  tensor_left_ -= bytes.size();
  if (tensor_left_ > 0) return;
  const std::uint64_t size = tensor_bytes(tensors_[tensor_]);
  file_->write(std::string(aligned(size) - size, '\0'));
  if (++tensor_ < tensors_.size()) tensor_left_ = tensor_bytes(tensors_[tensor_]);
}

void GgufWriter::finish() {
  if (tensor_ != tensors_.size())
    throw Error("tensor " + tensors_[tensor_].name + " is incomplete");
  file_->finish();
}

}  // namespace canopy
