// Matrices by bitsandbytes in safetensors: numbers of a table of sixteen values, and factors.
#include "src/checkpoint/quantized/table_tensors.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "src/base/error.h"
#include "src/base/formats/weight_format.h"
#include "src/base/json.h"
#include "src/base/utf8.h"
#include "src/checkpoint/config_fields.h"
#include "src/checkpoint/quantized/matrix_parts.h"
#include "src/checkpoint/quantized/part_checks.h"

namespace canopy {

namespace {

using Shape = std::vector<std::int64_t>;
constexpr std::string_view kState = ".quant_state.bitsandbytes__";
constexpr std::uint64_t kMostStateBytes = 4096;

std::int64_t divided_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

class Join {
 public:
  explicit Join(TensorIndex& index) : index_(index) {
    for (const TensorEntry& tensor : index.tensors) by_name_.emplace(tensor.name, &tensor);
  }

  TensorEntry joined(const TensorEntry& state, std::size_t name_length) {
    name_ = state.name.substr(0, name_length);
    const std::string type = state.name.substr(name_length + kState.size());
    if (type == "nf4") return joined_as(format::NF4(), type, state);
    if (type == "fp4") return joined_as(format::FP4(), type, state);
    throw Error("its codes are " + in_quotes(type) + ", not nf4 or fp4");
  }

  void finish(std::vector<TensorEntry> matrices) {
    std::erase_if(index_.tensors,
                  [&](const TensorEntry& tensor) { return gone_.contains(tensor.name); });
    std::ranges::move(matrices, std::back_inserter(index_.tensors));
  }

 private:
  template <class Format>
  TensorEntry joined_as(Format, const std::string& type, const TensorEntry& state) {
    if (type_of(state) != "U8" || state.shape.size() != 1 || state.bytes > kMostStateBytes)
      refuse_part(state, "a text in U8");
    gone_.insert(state.name);
    const std::vector<char> text = read_part_as<char>(index_.files, state);
    const nlohmann::json object = in_context("reading its part " + in_quotes(state.name), [&] {
      return parse_json({text.data(), text.size()});
    });
    const Fields fields(object, state.name);
    if (fields.text("quant_type") != type)
      throw Error("key " + fields.name("quant_type") + " is not " + in_quotes(type));
    const Shape shape = read_shape(fields);
    const std::int64_t weights = shape[0] * shape[1];
    if (shape[1] % Format::kBlockElements != 0)
      throw Error("its rows have " + std::to_string(shape[1]) +
                  " columns, which are not whole blocks of 64; take the model in another form");
    MatrixParts m{.layout = MatrixParts::Layout::kTable,
                  .bits = 4,
                  .rows = shape[0],
                  .columns = shape[1],
                  .group = read_group(fields, "blocksize"),
                  .zero_added = 0,
                  .codes = part(""),
                  .scales = part(".absmax"),
                  .zeros = {}};
    if (m.group % Format::kBlockElements != 0)
      throw Error("key " + fields.name("blocksize") + " is " + std::to_string(m.group) +
                  ", not a multiple of 64");
    require_part(m.codes, "U8", 1, {weights / 2, 1});
    const TensorEntry& table = part(".quant_map");
    require_part(table, "F32", sizeof(float), {16});
    if (!std::ranges::equal(read_part_as<float>(index_.files, table), Format::kTable.entries))
      throw Error("its part " + in_quotes(table.name) + " is not the table of " + type);
    const std::int64_t groups = divided_up(weights, m.group);
    if (fields.given("nested_offset")) m.doubled = read_doubled(fields, groups);
    if (m.doubled)
      require_part(m.scales, "U8", 1, {groups});
    else
      require_part(m.scales, "F32", sizeof(float), {groups});
    TensorEntry matrix = m.codes;
    matrix.foreign_dtype.reset();
    matrix.dtype = Format::kDType;
    matrix.shape = shape;
    matrix.bytes = tensor_bytes(matrix.dtype, matrix.shape);
    matrix.parts = std::make_shared<const MatrixParts>(std::move(m));
    return matrix;
  }

  static Shape read_shape(const Fields& fields) {
    const nlohmann::json* const value = fields.find("shape");
    Shape shape;
    for (const nlohmann::json& extent : value && value->is_array() ? *value : nlohmann::json())
      if (const auto number = integer_in<int>(extent); number && *number > 0 && *number <= kMostDim)
        shape.push_back(*number);
    if (shape.size() != 2 || value->size() != 2)
      throw Error("key " + fields.name("shape") + " is not [rows, columns]");
    return shape;
  }
  /// Reads how many share a factor.
  static std::int64_t read_group(const Fields& fields, const char* key) {
    return fields.integer(key, kMostDim);
  }

  std::shared_ptr<const MatrixParts::Doubled> read_doubled(const Fields& fields,
                                                           std::int64_t groups) {
    const std::optional<double> offset = fields.number("nested_offset");
    if (const std::string type = fields.text("nested_dtype"); type != "float32")
      throw Error("key " + fields.name("nested_dtype") + " is " + in_quotes(type) +
                  ", not 'float32'");
    const TensorEntry& values = part(".nested_quant_map");
    MatrixParts::Doubled doubled{.scales = part(".nested_absmax"),
                                 .values = {},
                                 .group = read_group(fields, "nested_blocksize"),
                                 .offset = static_cast<float>(offset.value_or(0))};
    require_part(values, "F32", sizeof(float), {std::ssize(doubled.values)});
    require_part(doubled.scales, "F32", sizeof(float), {divided_up(groups, doubled.group)});
    std::ranges::copy(read_part_as<float>(index_.files, values), doubled.values.begin());
    return std::make_shared<const MatrixParts::Doubled>(std::move(doubled));
  }

  /// The part, which is then left out.
  const TensorEntry& part(const std::string& suffix) {
    const auto at = by_name_.find(name_ + suffix);
    if (at == by_name_.end()) throw Error("its part " + in_quotes(name_ + suffix) + " is missing");
    gone_.insert(at->first);
    return *at->second;
  }

  TensorIndex& index_;
  std::map<std::string, const TensorEntry*, std::less<>> by_name_;
  std::set<std::string, std::less<>> gone_;
  std::string name_;  // of the matrix that is joined
};

}  // namespace

void join_table_tensors(TensorIndex& index, ModelConfig& config) {
  Join join(index);
  std::vector<TensorEntry> matrices;
  for (const TensorEntry& tensor : index.tensors)
    if (const std::size_t at = tensor.name.find(kState); at != std::string::npos)
      in_context("reading tensor " + in_quotes(tensor.name.substr(0, at)) + " of bitsandbytes",
                 [&] { matrices.push_back(join.joined(tensor, at)); });
  config.quantization = "bitsandbytes: " + std::to_string(matrices.size()) +
                        (matrices.size() == 1 ? " matrix" : " matrices");
  join.finish(std::move(matrices));
}

}  // namespace canopy
