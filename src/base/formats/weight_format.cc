#include "src/base/formats/weight_format.h"

namespace canopy {

namespace {

constexpr bool no_two_share_a_number() {
  for (std::size_t i = 0; i < kWeightFormats.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (kWeightFormats[i].dtype == kWeightFormats[j].dtype ||
          (kWeightFormats[i].gguf_id == kWeightFormats[j].gguf_id &&
           kWeightFormats[i].gguf_id != format::kNotInGguf))
        return false;
  return true;
}
static_assert(no_two_share_a_number());

}  // namespace

std::string in_words(std::span<const char* const> names) {
  std::string words;
  for (std::size_t i = 0; i < names.size(); ++i)
    words += std::string(i == 0 ? "" : i + 1 < names.size() ? ", " : " and ") + names[i];
  return words;
}

void dequantize_row(DType dtype, const std::byte* row, std::span<float> out) {
  row_bytes(dtype, static_cast<std::int64_t>(out.size()));  // throws unless whole blocks
  visit_format(dtype, [&]<class Format>(Format) {
    for (auto to = out.begin(); to != out.end(); row += Format::kBlockBytes)
      for (int i = 0; i < Format::kBlockElements; ++i) *to++ = Format::decode(row, i);
  });
}

void encode_row(DType dtype, std::span<const float> row, std::byte* out) {
  visit_format(PlainFormats(), dtype, [&]<class Format>(Format) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const typename Format::Element bits = Format::encode(row[i]);
      memcpy(out + i * sizeof bits, &bits, sizeof bits);
    }
  });
}

}  // namespace canopy
