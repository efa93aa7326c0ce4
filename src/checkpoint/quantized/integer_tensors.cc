// Matrices of whole numbers in safetensors: NAME.qweight, NAME.weight_packed, or NAME.weight of I8,
// and next to it what gives the codes their values.
#include "src/checkpoint/quantized/integer_tensors.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>

#include "src/base/error.h"
#include "src/base/formats/grouped_format.h"
#include "src/base/formats/weight_format.h"
#include "src/base/utf8.h"
#include "src/checkpoint/config_fields.h"
#include "src/checkpoint/quantized/part_checks.h"

namespace canopy {

namespace {

using Shape = std::vector<std::int64_t>;

/// Names of a matrix's parts, after its module's.
struct Suffixes {
  std::string_view codes, scales, zeros, groups;
};
constexpr Suffixes kOfQweight{".qweight", ".scales", ".qzeros", ".g_idx"};
constexpr Suffixes kOfPacked{".weight_packed", ".weight_scale", ".weight_zero_point",
                             ".weight_g_idx"};
constexpr Suffixes kOfBytes{".weight", ".weight_scale", ".weight_zero_point", ".weight_g_idx"};
constexpr std::string_view kShape = ".weight_shape";
constexpr std::array<std::string_view, 2> kOfActivations{".input_scale", ".input_zero_point"};

const Suffixes& suffixes_of(MatrixParts::Layout layout) {
  if (layout == MatrixParts::Layout::kBytes) return kOfBytes;
  return layout == MatrixParts::Layout::kCompressed ? kOfPacked : kOfQweight;
}

std::int64_t divided_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

/// The format of rows with these codes whose blocks are the largest that groups and rows are made
/// of. `group` is `columns` where a row has one scale.
const WeightFormat& format_of_rows(int bits, std::int64_t group, std::int64_t columns) {
  const WeightFormat* best = nullptr;
  for (const WeightFormat& f : kIntegerFormats) {
    const bool fits = static_cast<std::int64_t>(f.block_bytes - format::I4_32::kCodesAt) * 8 ==
                          bits * f.block_elements &&
                      columns % f.block_elements == 0 && group % f.block_elements == 0;
    if (fits && (!best || f.block_elements > best->block_elements)) best = &f;
  }
  if (!best)
    throw Error("its rows have " + std::to_string(columns) +
                " columns, which are not whole blocks of 32; take the model in another form");
  return *best;
}

const GroupedFormat& grouped_format_of(int bits) {
  return *std::ranges::find(kGroupedFormats, bits, &GroupedFormat::bits);
}

class Join {
 public:
  Join(TensorIndex& index, const IntegerScheme& scheme)
      : index_(index), scheme_(scheme), suffixes_(suffixes_of(scheme.layout)) {
    for (const TensorEntry& tensor : index.tensors) by_name_.emplace(tensor.name, &tensor);
  }

  bool is_of_codes(const TensorEntry& tensor) const {
    return tensor.name.ends_with(suffixes_.codes) && (!bytes() || type_of(tensor) == "I8");
  }

  TensorEntry joined(const TensorEntry& codes) {
    module_ = codes.name.substr(0, codes.name.size() - suffixes_.codes.size());
    require_numbers(codes, 2);
    const TensorEntry* const scales = find(suffixes_.scales);
    if (!scales) throw Error("its part " + in_quotes(part(suffixes_.scales)) + " is missing");
    MatrixParts m{scheme_.layout, 0, 0, 0, 0, scheme_.zero_added, codes, *scales, {}};
    require_scales(*scales);
    if (const TensorEntry* const zeros = find(suffixes_.zeros)) {
      require_numbers(*zeros, bytes() ? scales->shape.size() : 2);
      m.zeros = *zeros;
    }
    put_shape(m);
    put_form(m);
    std::vector<std::int32_t> groups;  // of columns in an order of their own
    if (const TensorEntry* const order = find(suffixes_.groups)) groups = read_groups(*order, m);
    TensorEntry matrix = codes;
    matrix.name = module_ + ".weight";
    if (!bytes() && by_name_.contains(matrix.name))
      throw Error("there is also " + in_quotes(matrix.name) + ", and which of them counts is open");
    matrix.foreign_dtype.reset();
    matrix.shape = {m.rows, m.columns};
    if (groups.empty()) {
      matrix.dtype = format_of_rows(m.bits, m.group, m.columns).dtype;
    } else {
      const GroupedFormat& format = grouped_format_of(m.bits);
      matrix.dtype = format.dtype;
      matrix.companion = companion_of_groups(format, groups, m.rows);
    }
    matrix.bytes = tensor_bytes(matrix);
    matrix.parts = std::make_shared<const MatrixParts>(std::move(m));
    gone_.insert(codes.name);
    for (const std::string_view suffix : kOfActivations)
      if (const TensorEntry* const unused = find(suffix)) activations_ += unused->bytes > 0;
    return matrix;
  }

  /// Says what there was, for TensorEntry's config.
  std::string in_words(std::size_t matrices) const {
    std::string words =
        scheme_.name + ": " + std::to_string(matrices) + (matrices == 1 ? " matrix" : " matrices");
    if (activations_ > 0) words += "; activations are not quantised, and their scales are not used";
    return words;
  }

  void finish(std::vector<TensorEntry> matrices) {
    std::erase_if(index_.tensors,
                  [&](const TensorEntry& tensor) { return gone_.contains(tensor.name); });
    std::ranges::move(matrices, std::back_inserter(index_.tensors));
  }

 private:
  bool bytes() const { return scheme_.layout == MatrixParts::Layout::kBytes; }
  std::string part(std::string_view suffix) const { return module_ + std::string(suffix); }

  /// The part, which is then left out; null where there is none.
  const TensorEntry* find(std::string_view suffix) {
    const auto at = by_name_.find(part(suffix));
    if (at == by_name_.end()) return nullptr;
    gone_.insert(at->first);
    return at->second;
  }

  /// Checks a part of a type whose size the reader of the container does not know.
  static void require_bytes(const TensorEntry& tensor, std::uint64_t of_each,
                            const std::string& wanted) {
    std::uint64_t bytes = of_each;
    for (const std::int64_t extent : tensor.shape)
      if (extent > kMostDim || extent < 1 ||
          __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes))
        refuse_part(tensor, wanted);
    if (bytes != tensor.bytes)
      throw Error("its part " + in_quotes(tensor.name) + " has " + std::to_string(tensor.bytes) +
                  " bytes, but " + wanted + " " + to_string(tensor.shape) + " takes " +
                  std::to_string(bytes));
  }
  static void require_numbers(const TensorEntry& tensor, std::size_t axes, const std::string& type,
                              std::uint64_t of_each) {
    const std::string wanted = (axes == 2 ? "a matrix of " : "a vector of ") + type;
    if (type_of(tensor) != type || tensor.shape.size() != axes) refuse_part(tensor, wanted);
    require_bytes(tensor, of_each, wanted);
  }
  /// Checks codes or zero points.
  void require_numbers(const TensorEntry& tensor, std::size_t axes) const {
    bytes() ? require_numbers(tensor, axes, "I8", 1)
            : require_numbers(tensor, axes, "I32", sizeof(std::int32_t));
  }
  static void require_scales(const TensorEntry& tensor) {
    const bool known =
        !tensor.foreign_dtype && (tensor.dtype == DType::kF16 || tensor.dtype == DType::kBF16 ||
                                  tensor.dtype == DType::kF32);
    if (!known) refuse_part(tensor, "scales in F16, BF16 or F32");
    require_bytes(tensor, row_bytes(tensor.dtype, 1), "scales in F16, BF16 or F32");
  }

  /// Reads rows and columns from the shapes, and the bits where these say them.
  void put_shape(MatrixParts& m) {
    const Shape& codes = m.codes.shape;
    if (bytes()) {
      m.rows = codes[0], m.columns = codes[1];
      return;
    }
    if (m.layout == MatrixParts::Layout::kCompressed) {
      const TensorEntry* const shape = find(kShape);
      if (!shape) throw Error("its part " + in_quotes(part(kShape)) + " is missing");
      const bool narrow = type_of(*shape) == "I32";
      if ((!narrow && type_of(*shape) != "I64") || shape->shape != Shape{2})
        refuse_part(*shape, "two of I64");
      require_bytes(*shape, narrow ? 4 : 8, "two of I64");
      const auto put = [&](const auto& values) { m.rows = values[0], m.columns = values[1]; };
      narrow ? put(read_part_as<std::int32_t>(index_.files, *shape))
             : put(read_part_as<std::int64_t>(index_.files, *shape));
      if (m.rows != codes[0] || m.columns < 1 || m.columns > kMostDim)
        throw Error("its part " + in_quotes(shape->name) + " says " +
                    to_string(Shape{m.rows, m.columns}) + ", but its codes are " +
                    to_string(codes));
      return;
    }
    // AWQ's and GPTQ's scheme says the bits of all matrices.
    m.bits = scheme_.forms.front().bits;
    const std::int64_t fields = 32 / m.bits;
    const bool awq = m.layout == MatrixParts::Layout::kAwq;
    m.columns = awq ? codes[0] : codes[0] * fields;
    m.rows = awq ? codes[1] * fields : codes[1];
    if (m.rows > kMostDim || m.columns > kMostDim)
      throw Error("its codes have shape " + to_string(codes) + ", which is too large");
  }

  /// Finds the form of the scheme that the shapes have.
  void put_form(MatrixParts& m) {
    for (const IntegerScheme::Form& form : scheme_.forms) {
      MatrixParts as = m;
      as.bits = form.bits;
      as.group = form.group < 0 ? m.columns : std::min(form.group, m.columns);
      if (form.zeros != m.zeros.has_value() || !fits(as)) continue;
      if (m.group != 0 && (m.bits != as.bits || m.group != as.group))
        throw Error("its shapes are those of more than one form of the scheme");
      m = as;
    }
    if (m.group != 0) return;
    throw Error(
        "codes " + to_string(m.codes.shape) + ", scales " + to_string(m.scales.shape) +
        (m.zeros ? " and zero points " + to_string(m.zeros->shape) : " without zero points") +
        " are those of no form that " + scheme_.name + " of the config has");
  }
  static bool fits(const MatrixParts& m) {
    const std::int64_t fields = 32 / m.bits, groups = divided_up(m.columns, m.group);
    const Shape& scales = m.scales.shape;
    switch (m.layout) {
      case MatrixParts::Layout::kAwq:
      case MatrixParts::Layout::kGptq:
        return scales == Shape{groups, m.rows} && m.rows % fields == 0 && m.zeros &&
               m.zeros->shape == Shape{groups, m.rows / fields};
      default:
        break;
    }
    const bool whole = groups == 1 && (scales == Shape{1} || scales == Shape{1, 1});
    if (m.layout == MatrixParts::Layout::kBytes)
      return (scales == Shape{m.rows, groups} || whole) && (!m.zeros || m.zeros->shape == scales);
    return m.codes.shape == Shape{m.rows, divided_up(m.columns, fields)} &&
           (scales == Shape{m.rows, groups} || (whole && !m.zeros)) &&
           (!m.zeros || m.zeros->shape == Shape{divided_up(m.rows, fields), groups});
  }

  /// Returns the group of each column; nothing where they are runs of columns.
  std::vector<std::int32_t> read_groups(const TensorEntry& order, const MatrixParts& m) const {
    require_numbers(order, 1, "I32", sizeof(std::int32_t));
    if (order.shape != Shape{m.columns})
      refuse_part(order, "a vector of " + std::to_string(m.columns) + " groups");
    std::vector<std::int32_t> groups = read_part_as<std::int32_t>(index_.files, order);
    // compressed-tensors has -1 where there is no order.
    if (std::ranges::all_of(groups, [](std::int32_t g) { return g == -1; })) return {};
    bool natural = true;
    for (std::size_t k = 0; k < groups.size(); ++k) {
      if (groups[k] < 0 || groups[k] >= divided_up(m.columns, m.group))
        throw Error("its part " + in_quotes(order.name) + " gives column " + std::to_string(k) +
                    " group " + std::to_string(groups[k]) + " of " +
                    std::to_string(divided_up(m.columns, m.group)));
      natural = natural && groups[k] == static_cast<std::int64_t>(k) / m.group;
    }
    return natural ? std::vector<std::int32_t>() : groups;
  }

  TensorIndex& index_;
  const IntegerScheme& scheme_;
  const Suffixes suffixes_;
  std::map<std::string, const TensorEntry*, std::less<>> by_name_;
  std::set<std::string, std::less<>> gone_;
  std::string module_;  // of the matrix that is joined
  int activations_ = 0;
};

}  // namespace

void join_integer_tensors(TensorIndex& index, const IntegerScheme& scheme, ModelConfig& config) {
  Join join(index, scheme);
  std::vector<TensorEntry> matrices;
  for (const TensorEntry& tensor : index.tensors)
    if (join.is_of_codes(tensor))
      in_context("reading tensor " + in_quotes(tensor.name) + " of " + scheme.name,
                 [&] { matrices.push_back(join.joined(tensor)); });
  config.quantization = join.in_words(matrices.size());
  join.finish(std::move(matrices));
}

}  // namespace canopy
