// FP8 matrices in safetensors: NAME.weight of E4M3 bytes, and next to it its scales, by which it is
// multiplied whatever they are called.
#include "src/checkpoint/quantized/fp8_tensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>

#include "src/base/error.h"
#include "src/base/formats/packed_format.h"
#include "src/base/utf8.h"
#include "src/checkpoint/config_fields.h"
#include "src/checkpoint/header_reader.h"
#include "src/checkpoint/model_tensors.h"

namespace canopy {

namespace {

constexpr std::string_view kCodes = "F8_E4M3", kExponents = "F8_E8M0", kWeight = ".weight";
constexpr std::array<std::string_view, 3> kScales{".weight_scale_inv", ".weight_scale",
                                                  ".qscale_weight"};
constexpr std::array<std::string_view, 3> kOfActivations{".input_scale", ".activation_scale",
                                                         ".qscale_act"};

/// True of what with_packed_tensors() leaves to join; a file may call any dtype by this name.
bool is_packed_fp8(const TensorEntry& tensor) {
  return tensor.foreign_dtype == format::LevelsE4M3Rows::kCodec && tensor.scales.size() == 1;
}
bool is_fp8(const TensorEntry& tensor) {
  return tensor.foreign_dtype == kCodes || is_packed_fp8(tensor);
}

std::string what_it_is(const TensorEntry& tensor) {
  return (tensor.foreign_dtype ? in_quotes(*tensor.foreign_dtype) : name(tensor.dtype)) + " " +
         to_string(tensor.shape);
}

/// The numbers of a tensor, of which its file has all.
template <class Stored>
std::vector<Stored> read_numbers(const std::filesystem::path& file, const TensorEntry& tensor) {
  HeaderReader reader(file, std::numeric_limits<std::uint64_t>::max());
  reader.skip_to(tensor.offset);
  std::vector<Stored> stored(tensor.bytes / sizeof(Stored));
  reader.read(stored.data(), stored.size() * sizeof(Stored));
  return stored;
}

/// The scales of a tensor as f32, which holds all of their types. Throws Error for other types.
std::vector<float> read_scales(const std::filesystem::path& file, const TensorEntry& tensor) {
  std::vector<float> scales;
  const auto read = [&]<class Stored>(Stored, const auto& widen) {
    std::ranges::transform(read_numbers<Stored>(file, tensor), std::back_inserter(scales), widen);
  };
  const std::string type = tensor.foreign_dtype.value_or(name(tensor.dtype));
  if (type == "F32")
    read(float{}, [](float scale) { return scale; });
  else if (type == "BF16")
    read(std::uint16_t{}, f32_from_bf16);
  else if (type == "F16")
    read(std::uint16_t{}, f32_from_f16);
  else if (type == kExponents || type == "U8")
    read(std::uint8_t{}, format::f32_from_e8m0);
  else
    throw Error("its scales " + in_quotes(tensor.name) + " are " + in_quotes(type) +
                "; they may be F32, BF16, F16 or F8_E8M0");
  return scales;
}

class Join {
 public:
  Join(TensorIndex& index, const Fp8Scheme& scheme) : index_(index), scheme_(scheme) {
    for (const TensorEntry& tensor : index.tensors) by_name_.emplace(tensor.name, &tensor);
  }

  /// Gives the matrix its companion.
  void join(TensorEntry& matrix) {
    const std::string module = matrix.name.substr(0, matrix.name.size() - kWeight.size());
    if (!matrix.name.ends_with(kWeight) || matrix.shape.size() != 2 || matrix.shape[0] < 1 ||
        matrix.shape[1] < 1 || matrix.shape[0] > kMostDim || matrix.shape[1] > kMostDim)
      throw Error("it is " + what_it_is(matrix) + ", which is no matrix named NAME.weight");
    if (scheme_.leaves_out(module).value_or(false))
      throw Error("it is " + what_it_is(matrix) + ", but the list '" + scheme_.left_out_key +
                  "' of the config leaves " + in_quotes(module) + " out");
    const TensorEntry& stored = scales_of(module);
    std::vector<TensorEntry> all{stored};
    for (const std::string_view suffix : kOfActivations)
      if (const auto at = by_name_.find(module + std::string(suffix)); at != by_name_.end()) {
        gone_.insert(at->first);
        all.push_back(*at->second);
        ++activations_;
      }
    const std::int64_t rows = matrix.shape[0], columns = matrix.shape[1];
    const auto blocks = [](std::int64_t length) { return (length + 127) / 128; };
    using Shape = std::vector<std::int64_t>;
    const Shape& shape = stored.shape;
    const bool whole = shape.empty() || shape == Shape{1} || shape == Shape{1, 1};
    const bool by_rows = shape == Shape{rows} || shape == Shape{rows, 1};
    const bool by_blocks = shape == Shape{blocks(rows), blocks(columns)};
    const bool fits = (whole && scheme_.tensor_scales) || (by_rows && scheme_.row_scales) ||
                      (by_blocks && scheme_.block_scales);
    if (!fits) refuse_shape(stored, Shape{rows, 1}, Shape{blocks(rows), blocks(columns)});
    std::vector<float> scales = read_scales(file_of(stored), stored);
    const bool as_blocks = by_blocks && scheme_.block_scales && !whole;
    if (whole) scales.assign(static_cast<std::size_t>(rows), scales.at(0));
    put_companion(matrix, as_blocks ? DType::kE4M3Blocks : DType::kE4M3Rows, scales);
    matrix.foreign_dtype.reset();
    matrix.scales = std::move(all);
    gone_.insert(stored.name);
    ++(as_blocks ? of_blocks_ : whole ? of_tensors_ : of_rows_);
  }

  /// Leaves the scales out.
  void finish() {
    std::erase_if(index_.tensors,
                  [&](const TensorEntry& tensor) { return gone_.contains(tensor.name); });
  }

  std::string in_words() const {
    std::string words = scheme_.name + ":";
    const auto add = [&](int count, const char* of) {
      if (count == 0) return;
      words += (words.ends_with(':') ? " " : ", ") + std::to_string(count) +
               (count == 1 ? " matrix" : " matrices") + " with a scale " + of;
    };
    add(of_blocks_, "for 128 x 128 weights");
    add(of_rows_, "for each row");
    add(of_tensors_, "of its own");
    words += "; activations are not quantised";
    if (activations_ > 0)
      words += ", " + std::to_string(activations_) + (activations_ == 1 ? " scale" : " scales") +
               " of them " + (activations_ == 1 ? "is" : "are") + " not used";
    return words;
  }

 private:
  const std::filesystem::path& file_of(const TensorEntry& tensor) const {
    return index_.files[static_cast<std::size_t>(tensor.file)];
  }
  /// Makes a matrix one of `plain`, or of the format that packs this.
  void put_companion(TensorEntry& matrix, DType plain, std::span<const float> scales) const {
    const std::int64_t rows = matrix.shape[0], columns = matrix.shape[1];
    matrix.dtype = plain;
    const CompanionFormat* format = find_fp8_format(plain);
    const auto plain_bytes = std::as_bytes(scales);
    std::vector<std::byte> bytes(plain_bytes.begin(), plain_bytes.end());
    if (is_packed_fp8(matrix)) {
      const PackedFormat& packed = *find_codec(*matrix.foreign_dtype, plain);
      const TensorEntry& offsets = matrix.scales.at(0);  // of its own file
      matrix.dtype = packed.dtype;
      format = packed.companion;
      bytes = with_scales(packed.dtype, read_numbers<RowOffset>(file_of(matrix), offsets), scales,
                          columns);
    }
    matrix.companion = {*format, std::move(bytes), rows, columns, matrix.bytes};
  }
  const TensorEntry& scales_of(const std::string& module) const {
    const TensorEntry* found = nullptr;
    for (const std::string_view suffix : kScales) {
      const auto at = by_name_.find(module + std::string(suffix));
      if (at == by_name_.end()) continue;
      if (found)
        throw Error("it has scales by two names, " + in_quotes(found->name) + " and " +
                    in_quotes(at->second->name));
      found = at->second;
    }
    if (!found)
      throw Error("it has no scales: neither " + in_quotes(module + std::string(kScales[0])) +
                  " nor " + in_quotes(module + std::string(kScales[1])) + " is there");
    return *found;
  }
  [[noreturn]] void refuse_shape(const TensorEntry& stored, const std::vector<std::int64_t>& rows,
                                 const std::vector<std::int64_t>& blocks) const {
    std::vector<std::string> allowed;
    if (scheme_.block_scales) allowed.push_back(to_string(blocks));
    if (scheme_.row_scales) allowed.push_back(to_string(rows));
    if (scheme_.tensor_scales) allowed.push_back("[1]");
    std::string words;
    for (std::size_t i = 0; i < allowed.size(); ++i)
      words += (i == 0 ? "" : i + 1 < allowed.size() ? ", " : " or ") + allowed[i];
    throw Error("its scales " + in_quotes(stored.name) + " have shape " + to_string(stored.shape) +
                ", but " + scheme_.name + " asks for " + words);
  }

  TensorIndex& index_;
  const Fp8Scheme& scheme_;
  std::map<std::string, const TensorEntry*, std::less<>> by_name_;
  std::set<std::string, std::less<>> gone_;
  int of_blocks_ = 0, of_rows_ = 0, of_tensors_ = 0, activations_ = 0;
};

/// Throws Error if a layer's matrix is plain though the config does not leave it out.
void require_agreement(const TensorIndex& index, const Fp8Scheme& scheme, const Family& family,
                       int layers) {
  if (!scheme.every_layer) return;
  for (const TensorEntry& tensor : index.tensors) {
    const auto known = find_tensor(canonical_name(family, tensor.name));
    if (!known || known->layer < 0 || known->layer >= layers ||
        known->spec->kind != TensorKind::kMatrix || !tensor.name.ends_with(kWeight) ||
        !tensor.companion.empty() || tensor.foreign_dtype)
      continue;  // a type that is not known is refused by its name
    const std::string module = tensor.name.substr(0, tensor.name.size() - kWeight.size());
    if (!scheme.leaves_out(module).value_or(true))
      throw Error("tensor " + in_quotes(tensor.name) + " is " + what_it_is(tensor) + ", but " +
                  scheme.name + " of the config leaves " + in_quotes(module) +
                  " not out: its weights should be " + std::string(kCodes));
  }
}

}  // namespace

void join_fp8_tensors(TensorIndex& index, const std::optional<Fp8Scheme>& scheme,
                      const Family& family, ModelConfig& config) {
  if (!scheme) {
    for (const TensorEntry& tensor : index.tensors)
      if (is_fp8(tensor))
        throw Error("tensor " + in_quotes(tensor.name) + " is " + what_it_is(tensor) +
                    ", but config.json has no 'quantization_config' that says what scales it has");
    return;
  }
  Join join(index, *scheme);
  for (TensorEntry& tensor : index.tensors)
    if (is_fp8(tensor))
      in_context("reading tensor " + in_quotes(tensor.name) + " of " + scheme->name,
                 [&] { join.join(tensor); });
  join.finish();
  require_agreement(index, *scheme, family, config.layers);
  config.quantization = join.in_words();
}

}  // namespace canopy
