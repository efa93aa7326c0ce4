#include "offload/unit_layout.h"

#include <algorithm>

#include "src/base/error.h"

namespace canopy {

namespace {

const TensorEntry& entry(const Checkpoint& checkpoint, const std::string& name,
                         std::initializer_list<std::int64_t> shape) {
  const TensorEntry* const found = checkpoint.find(name);
  if (!found) throw Error("tensor " + name + " is missing from " + checkpoint.root().string());
  if (!std::equal(shape.begin(), shape.end(), found->shape.begin(), found->shape.end()))
    throw Error("tensor " + name + " has another shape than the model's config asks for");
  const std::size_t bytes = ConstTensorView(nullptr, found->dtype, shape).bytes();
  if (bytes != found->bytes)
    throw Error("tensor " + name + " has " + std::to_string(found->bytes) +
                " bytes, but its shape (" + canopy::name(found->dtype) + ") needs " +
                std::to_string(bytes));
  if (static_cast<std::size_t>(found->file) >= checkpoint.files().size())
    throw Error("tensor " + name + " lies in a file that the checkpoint does not have");
  return *found;
}

/// Collects one unit's tensors by name.
class UnitBuilder {
 public:
  UnitBuilder(const Checkpoint& checkpoint, Unit unit) : checkpoint_(checkpoint) {
    layout_.unit = unit;
  }
  void matrix(ConstTensorView UnitWeights::*field, const std::string& name, std::int64_t rows,
              std::int64_t columns) {
    matrix(field, entry(checkpoint_, name, {rows, columns}));
  }
  void matrix(ConstTensorView UnitWeights::*field, TensorEntry found) {
    layout_.matrices.push_back({field, std::move(found)});
  }
  void vector(ConstTensorView UnitWeights::*field, const std::string& name, std::int64_t size) {
    layout_.vectors.push_back({field, entry(checkpoint_, name, {size})});
  }
  UnitLayout finish(std::size_t alignment) {
    std::vector<const TensorEntry*> tensors;
    for (const UnitTensor& matrix : layout_.matrices) tensors.push_back(&matrix.tensor);
    layout_.read = lay_out(tensors, alignment);
    return std::move(layout_);
  }

 private:
  const Checkpoint& checkpoint_;
  UnitLayout layout_;
};

UnitLayout attention(const Checkpoint& checkpoint, int layer, std::size_t alignment) {
  const ModelConfig& c = checkpoint.config();
  const std::int64_t dim = c.dim, q = std::int64_t{c.heads} * c.head_dim,
                     kv = std::int64_t{c.kv_heads} * c.head_dim;
  const std::string at = "model.layers." + std::to_string(layer) + ".";
  UnitBuilder unit(checkpoint, {layer, Part::kAttention});
  unit.vector(&UnitWeights::norm, at + "input_layernorm.weight", dim);
  unit.matrix(&UnitWeights::wq, at + "self_attn.q_proj.weight", q, dim);
  unit.matrix(&UnitWeights::wk, at + "self_attn.k_proj.weight", kv, dim);
  unit.matrix(&UnitWeights::wv, at + "self_attn.v_proj.weight", kv, dim);
  unit.matrix(&UnitWeights::wo, at + "self_attn.o_proj.weight", dim, q);
  if (c.layer(layer).qkv_bias) {
    unit.vector(&UnitWeights::bq, at + "self_attn.q_proj.bias", q);
    unit.vector(&UnitWeights::bk, at + "self_attn.k_proj.bias", kv);
    unit.vector(&UnitWeights::bv, at + "self_attn.v_proj.bias", kv);
  }
  if (c.layer(layer).qk_norm) {
    unit.vector(&UnitWeights::q_norm, at + "self_attn.q_norm.weight", c.head_dim);
    unit.vector(&UnitWeights::k_norm, at + "self_attn.k_norm.weight", c.head_dim);
  }
  return unit.finish(alignment);
}

UnitLayout mlp(const Checkpoint& checkpoint, int layer, std::size_t alignment) {
  const ModelConfig& c = checkpoint.config();
  const std::string at = "model.layers." + std::to_string(layer) + ".";
  UnitBuilder unit(checkpoint, {layer, Part::kMlp});
  unit.vector(&UnitWeights::norm, at + "post_attention_layernorm.weight", c.dim);
  unit.matrix(&UnitWeights::w_gate, at + "mlp.gate_proj.weight", c.hidden_dim, c.dim);
  unit.matrix(&UnitWeights::w_up, at + "mlp.up_proj.weight", c.hidden_dim, c.dim);
  unit.matrix(&UnitWeights::w_down, at + "mlp.down_proj.weight", c.dim, c.hidden_dim);
  return unit.finish(alignment);
}

void append_head(const Checkpoint& checkpoint, std::size_t alignment,
                 std::vector<UnitLayout>& units) {
  const ModelConfig& c = checkpoint.config();
  const std::string name = c.tied_head ? "model.embed_tokens.weight" : "lm_head.weight";
  const TensorEntry& head = entry(checkpoint, name, {c.vocab, c.dim});
  std::size_t most_bytes = 0;
  for (const UnitLayout& unit : units) most_bytes = std::max(most_bytes, unit.read.slab_bytes);
  const auto most_rows = static_cast<std::int64_t>(std::max<std::size_t>(
      1, most_bytes / std::max<std::size_t>(1, row_bytes(head.dtype, c.dim))));
  // In blocks of rows, so that each slice's columns of the logits begin at a multiple of 512 bytes:
  // products on a GPU are slower at any other. A head of tiny units is cut anywhere.
  const std::int64_t block = most_rows >= kHeadBlock ? kHeadBlock : 1;
  const std::int64_t blocks = (c.vocab + block - 1) / block, most_blocks = most_rows / block;
  const std::int64_t slices = (blocks + most_blocks - 1) / most_blocks;
  for (std::int64_t slice = 0; slice < slices; ++slice) {  // sizes differ by one block at most
    const std::int64_t first = blocks * slice / slices * block;
    const std::int64_t last =
        std::min<std::int64_t>(c.vocab, blocks * (slice + 1) / slices * block);
    UnitBuilder unit(checkpoint, {c.layers, Part::kHead, first, last - first});
    unit.vector(&UnitWeights::norm, "model.norm.weight", c.dim);
    unit.matrix(&UnitWeights::head, rows_of(head, first, last - first));
    units.push_back(unit.finish(alignment));
  }
}

}  // namespace

std::vector<UnitLayout> lay_out_units(const Checkpoint& checkpoint, std::size_t alignment) {
  return in_context("laying out " + checkpoint.root().string(), [&] {
    std::vector<UnitLayout> units;
    for (int layer = 0; layer < checkpoint.config().layers; ++layer) {
      units.push_back(attention(checkpoint, layer, alignment));
      units.push_back(mlp(checkpoint, layer, alignment));
    }
    append_head(checkpoint, alignment, units);
    return units;
  });
}

TensorEntry rows_of(const TensorEntry& matrix, std::int64_t first, std::int64_t rows) {
  TensorEntry part = matrix;
  const std::size_t row = row_bytes(matrix.dtype, matrix.shape[1]);
  part.offset += static_cast<std::uint64_t>(first) * row;
  part.bytes = static_cast<std::uint64_t>(rows) * row;
  part.shape[0] = rows;
  return part;
}

const TensorEntry& embedding_table(const Checkpoint& checkpoint) {
  return entry(checkpoint, "model.embed_tokens.weight",
               {checkpoint.config().vocab, checkpoint.config().dim});
}

std::string describe(const Unit& unit) {
  switch (unit.part) {
    case Part::kAttention:
      return "attention of layer " + std::to_string(unit.layer);
    case Part::kMlp:
      return "MLP of layer " + std::to_string(unit.layer);
    case Part::kHead:
      break;
  }
  return "head rows " + std::to_string(unit.first_row) + " to " +
         std::to_string(unit.first_row + unit.rows - 1);
}

std::size_t matrix_bytes(const TensorEntry& matrix) {
  return row_bytes(matrix.dtype, matrix.shape[1]) * static_cast<std::size_t>(matrix.shape[0]);
}

SlotLayout lay_out_slot(const UnitLayout& unit) {
  SlotLayout slot;
  for (const UnitTensor& matrix : unit.matrices) {
    slot.at.push_back(slot.bytes);
    slot.bytes +=
        (matrix_bytes(matrix.tensor) + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  }
  return slot;
}

void place_matrices(const UnitLayout& unit, const SlotLayout& slot, const std::byte* data,
                    UnitWeights& weights) {
  for (std::size_t i = 0; i < unit.matrices.size(); ++i) {
    const TensorEntry& t = unit.matrices[i].tensor;
    weights.*unit.matrices[i].field =
        ConstTensorView(data + slot.at[i], t.dtype, {t.shape[0], t.shape[1]});
  }
}

}  // namespace canopy
