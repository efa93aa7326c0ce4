#include "offload/unit_layout.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "offload/io/read_engine.h"
#include "src/base/error.h"
#include "src/checkpoint/model_tensors.h"

namespace canopy {

namespace {

/// A tensor of the checkpoint, checked: what builds one need not have opened its files.
const TensorEntry& entry(const Checkpoint& checkpoint, const ModelTensor& tensor) {
  const std::string name = tensor.name();
  const TensorEntry* const found = checkpoint.find(name);
  if (!found) throw Error("tensor " + name + " is missing from " + checkpoint.root().string());
  const std::vector<std::int64_t> shape = tensor.shape(checkpoint.config());
  if (found->shape != shape)
    throw Error("tensor " + name + " has shape " + to_string(found->shape) +
                ", but the model's config asks for " + to_string(shape));
  const std::uint64_t bytes =
      in_context("checking tensor " + name, [&] { return tensor_bytes(*found); });
  if (bytes != found->bytes)
    throw Error("tensor " + name + " has " + std::to_string(found->bytes) +
                " bytes, but its shape " + to_string(shape) + " of " + dtype_name(*found) +
                " needs " + std::to_string(bytes));
  if (static_cast<std::size_t>(found->file) >= checkpoint.files().size())
    throw Error("tensor " + name + " lies in a file that the checkpoint does not have");
  return *found;
}

/// The rows that a share has of a matrix; all of a tensor that is not cut. Of no rows where there
/// are none.
TensorEntry part_of(const TensorEntry& tensor, TensorRole role, const Share& share) {
  if (share.is_whole() || !is_cut_by_rows(role)) return tensor;
  if (share.block % slice_unit(tensor) != 0)
    throw Error("tensor " + tensor.name + " of " + dtype_name(tensor) + " is cut at multiples of " +
                std::to_string(slice_unit(tensor)) +
                " rows, and a share of the rows at multiples "
                "of " +
                std::to_string(share.block));
  const RowRange own = share.own(tensor.shape[0]);
  return rows_of(tensor, own.first, own.count);
}

/// Lays the unit's matrices out where they are read and where they are copied.
void place(UnitLayout& unit) {
  std::vector<const TensorEntry*> tensors;
  for (const UnitTensor& matrix : unit.matrices) {
    tensors.push_back(&matrix.tensor);
    unit.slot.at.push_back(unit.slot.bytes);
    unit.slot.bytes += device_bytes(matrix.tensor);
  }
  unit.read = lay_out(tensors, kReadAlignment);
}

/// A unit of a layer: what the table has of it, and with the first what comes before all of them.
UnitLayout lay_out_unit(const Checkpoint& checkpoint, const Unit& unit, TensorUnit of, bool first,
                        ExpertsAre experts, const Share& share) {
  UnitLayout layout{unit, {}, {}, {}, {}, 0};
  const auto add_those_of = [&](int layer, TensorUnit wanted) {
    for_each_tensor_of_layer(checkpoint.config(), layer, [&](const ModelTensor& tensor) {
      const TensorUnit unit_of = tensor.spec->unit;  // a delta net has an attention's norms
      if (unit_of != wanted &&
          !(wanted == TensorUnit::kRecurrent && unit_of == TensorUnit::kAttention))
        return;
      if (tensor.expert >= 0 && experts == ExpertsAre::kApart) return;
      const TensorRole role = tensor.spec->role;
      if (tensor.spec->kind != TensorKind::kMatrix)
        return static_cast<void>(
            layout.vectors.push_back({role, entry(checkpoint, tensor), tensor.expert}));
      const TensorEntry whole = entry(checkpoint, tensor);
      const TensorEntry own = part_of(whole, role, share);
      // The gate's columns are multiplied into those of `up` before they are gathered.
      if (is_cut_by_rows(role) && role != TensorRole::kGate) layout.gathered += whole.shape[0];
      if (own.shape[0] > 0) layout.matrices.push_back({role, own, tensor.expert});
    });
  };
  if (first) add_those_of(-1, TensorUnit::kEntry);
  add_those_of(unit.layer, of);
  place(layout);
  return layout;
}

void append_experts(const Checkpoint& checkpoint, int layer, std::vector<ExpertLayout>& experts) {
  const auto first = static_cast<std::ptrdiff_t>(experts.size());
  for (int expert = 0; expert < checkpoint.config().experts.count; ++expert)
    experts.push_back({layer, expert, {}, {}});
  for_each_tensor_of_layer(checkpoint.config(), layer, [&](const ModelTensor& tensor) {
    if (tensor.expert < 0) return;
    experts[static_cast<std::size_t>(first + tensor.expert)].matrices.push_back(
        {tensor.spec->role, entry(checkpoint, tensor), tensor.expert});
  });
  for (auto expert = experts.begin() + first; expert != experts.end(); ++expert) {
    std::vector<const TensorEntry*> tensors;
    for (const UnitTensor& matrix : expert->matrices) tensors.push_back(&matrix.tensor);
    expert->read = lay_out(tensors, kReadAlignment);
  }
}

void append_head(const Checkpoint& checkpoint, const Share& share, std::vector<UnitLayout>& units) {
  const ModelConfig& c = checkpoint.config();
  const TensorEntry head = part_of(
      entry(checkpoint, {&spec_of(c.tied_head ? TensorRole::kEmbedding : TensorRole::kHead)}),
      TensorRole::kHead, share);
  const RowRange own = share.own(c.vocab);
  std::size_t most_bytes = 0;
  for (const UnitLayout& unit : units) most_bytes = std::max(most_bytes, unit.read.slab_bytes);
  const auto most_rows = static_cast<std::int64_t>(
      std::max<std::size_t>(1, most_bytes / std::max<std::size_t>(1, longest_row(head))));
  // The cuts lie between blocks of rows, so that each slice's columns of the logits begin at a
  // multiple of 512 bytes: products on a GPU are slower at any other. A head of tiny units is cut
  // wherever its format can be.
  const std::int64_t unit_rows = slice_unit(head);
  const std::int64_t block = most_rows >= kHeadBlock ? std::lcm(kHeadBlock, unit_rows) : unit_rows;
  const std::int64_t blocks = (own.count + block - 1) / block,
                     most_blocks = std::max<std::int64_t>(1, most_rows / block);
  // A rank without rows of the head still has what comes before it.
  const std::int64_t slices = std::max<std::int64_t>(1, (blocks + most_blocks - 1) / most_blocks);
  for (std::int64_t slice = 0; slice < slices; ++slice) {  // sizes differ by one block at most
    const std::int64_t first = blocks * slice / slices * block;
    const std::int64_t last =
        std::min<std::int64_t>(own.count, blocks * (slice + 1) / slices * block);
    UnitLayout unit{
        {c.layers, UnitKind::kHead, own.first + first, last - first}, {}, {}, {}, {}, 0};
    unit.gathered = c.vocab * (slice + 1) / slices - c.vocab * slice / slices;
    const auto add_if_it_is_in = [&](TensorRole role, std::vector<UnitTensor>& to) {
      const ModelTensor tensor{&spec_of(role)};
      if (tensor.is_in(c)) to.push_back({role, entry(checkpoint, tensor)});
    };
    add_if_it_is_in(TensorRole::kFinalNorm, unit.vectors);
    add_if_it_is_in(TensorRole::kFinalNormBias, unit.vectors);
    if (slice == 0) add_if_it_is_in(TensorRole::kProjectOut, unit.matrices);
    // The embedding, where the head is tied to it, is the head here.
    if (last > first)
      unit.matrices.push_back({TensorRole::kHead, rows_of(head, first, last - first)});
    place(unit);
    units.push_back(std::move(unit));
  }
}

}  // namespace

SweepLayout lay_out_sweep(const Checkpoint& checkpoint, ExpertsAre experts, const Share& share) {
  require_valid(share);
  return in_context("laying out " + checkpoint.root().string(), [&] {
    SweepLayout sweep{checkpoint.root(),
                      checkpoint.files(),
                      checkpoint.config(),
                      entry(checkpoint, {&spec_of(TensorRole::kEmbedding)}),
                      {},
                      {}};
    for (int layer = 0; layer < sweep.config.layers; ++layer) {
      const LayerConfig& own = sweep.config.layer(layer);
      const auto add = [&](UnitKind kind, TensorUnit of) {
        sweep.units.push_back(
            lay_out_unit(checkpoint, {layer, kind}, of, sweep.units.empty(), experts, share));
      };
      if (own.attention) add(UnitKind::kAttention, TensorUnit::kAttention);
      if (own.recurrent) add(UnitKind::kRecurrent, TensorUnit::kRecurrent);
      if (own.mlp) add(UnitKind::kMlp, TensorUnit::kMlp);
      if (own.experts && experts == ExpertsAre::kApart)
        append_experts(checkpoint, layer, sweep.experts);
    }
    append_head(checkpoint, share, sweep.units);
    return sweep;
  });
}

ConstTensorView vector_at(const std::byte* data, const TensorEntry& tensor) {
  if (tensor.shape.size() == 1) return {data, DType::kF32, {tensor.shape[0]}};
  return {data, DType::kF32, {tensor.shape[0], tensor.shape[1]}};
}

std::int64_t vector_length(const TensorEntry& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1},
                         std::multiplies<>());
}

std::vector<std::size_t> first_experts(const SweepLayout& sweep) {
  std::vector<std::size_t> first(static_cast<std::size_t>(sweep.config.layers));
  for (std::size_t i = sweep.experts.size(); i-- > 0;)
    first[static_cast<std::size_t>(sweep.experts[i].layer)] = i;
  return first;
}

std::string describe(const Unit& unit) {
  switch (unit.kind) {
    case UnitKind::kAttention:
      return "attention of layer " + std::to_string(unit.layer);
    case UnitKind::kMlp:
      return "MLP of layer " + std::to_string(unit.layer);
    case UnitKind::kRecurrent:
      return "delta net of layer " + std::to_string(unit.layer);
    case UnitKind::kHead:
      break;
  }
  return "head rows " + std::to_string(unit.first_row) + " to " +
         std::to_string(unit.first_row + unit.rows - 1);
}

void add_matrices_at(const UnitLayout& unit, const std::byte* slab, UnitWeights& weights) {
  for (std::size_t i = 0; i < unit.matrices.size(); ++i)
    weights.add(unit.matrices[i].role,
                matrix_at(slab + unit.read.slab_at[i], unit.matrices[i].tensor),
                unit.matrices[i].expert);
}

void place_matrices(const UnitLayout& unit, const std::byte* slot, UnitWeights& weights) {
  for (std::size_t i = 0; i < unit.matrices.size(); ++i)
    weights.add(unit.matrices[i].role,
                matrix_on_device(slot + unit.slot.at[i], unit.matrices[i].tensor),
                unit.matrices[i].expert);
}

}  // namespace canopy
