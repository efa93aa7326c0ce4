#include "offload/embedding.h"

#include <algorithm>

#include "kernels/convert.h"
#include "offload/unit_layout.h"
#include "src/base/error.h"

namespace canopy {

namespace {

constexpr std::size_t kBatch = 64;  // rows read at once: as many as keep a disk busy

void check_ids(std::span<const TokenId> ids, std::int64_t vocab) {
  for (const TokenId id : ids)
    if (id < 0 || id >= vocab)
      throw Error("token " + std::to_string(id) + " is outside the vocabulary of " +
                  std::to_string(vocab));
}

/// The most that the aligned reads of a batch of rows can take.
std::size_t staging_bytes(const TensorEntry& table) {
  const std::size_t row = row_bytes(table.dtype, table.shape[1]);
  return kBatch * ((row + kReadAlignment - 1) / kReadAlignment + 1) * kReadAlignment;
}

std::size_t float_bytes(const TensorEntry& table) {
  return kBatch * row_bytes(DType::kF32, table.shape[1]);
}

}  // namespace

EmbeddingLookup::EmbeddingLookup(Device& device, ConstTensorView table)
    : ops_(device.ops()), table_(table), read_(device.make_event()) {}

EmbeddingLookup::~EmbeddingLookup() { read_->wait(); }

void EmbeddingLookup::operator()(std::span<const TokenId> ids, Stream& compute, TensorView out) {
  if (ids.empty()) return;
  check_ids(ids, table_.dim(0));
  read_->wait();
  ids_.assign(ids.begin(), ids.end());
  const auto* const data = reinterpret_cast<const std::byte*>(ids_.data());
  ops_.embed(compute, table_,
             ConstTensorView(data, DType::kI32, {static_cast<std::int64_t>(ids_.size())}), out);
  compute.record(*read_);
}

EmbeddingReader::EmbeddingReader(Device& device, const Checkpoint& checkpoint,
                                 std::unique_ptr<ReadEngine> engine)
    : device_(device),
      table_(embedding_table(checkpoint)),
      engine_(std::move(engine)),
      pump_(*engine_, checkpoint.files(), staging_bytes(table_) / kBatch,
            [](std::uint64_t) { return std::string("rows of the embedding table"); }),
      staging_(staging_bytes(table_)),
      rows_(float_bytes(table_)),
      copied_(device.make_event()) {}

EmbeddingReader::~EmbeddingReader() { copied_->wait(); }

std::size_t EmbeddingReader::bytes_needed(const Checkpoint& checkpoint) {
  const TensorEntry& table = embedding_table(checkpoint);
  return staging_bytes(table) + float_bytes(table);
}

void EmbeddingReader::operator()(std::span<const TokenId> ids, Stream& compute, TensorView out) {
  check_ids(ids, table_.shape[0]);
  const auto columns = static_cast<std::size_t>(table_.shape[1]);
  for (std::size_t first = 0; first < ids.size(); first += kBatch) {
    const auto batch = ids.subspan(first, std::min(kBatch, ids.size() - first));
    std::vector<TensorEntry> rows;
    for (const TokenId id : batch) rows.push_back(canopy::rows_of(table_, id, 1));
    std::vector<const TensorEntry*> wanted;
    for (const TensorEntry& row : rows) wanted.push_back(&row);
    const ReadLayout layout = lay_out(wanted, kReadAlignment);
    read_all(pump_, layout, staging_.data(), [](std::size_t) {});

    copied_->wait();  // the batch before has left rows_
    auto* const values = reinterpret_cast<float*>(rows_.data());
    for (std::size_t i = 0; i < batch.size(); ++i)
      dequantize_row(table_.dtype, staging_.data() + layout.slab_at[i],
                     {values + i * columns, columns});
    const auto count = static_cast<std::int64_t>(batch.size());
    device_.upload(compute, out.rows(static_cast<std::int64_t>(first), count).data(),
                   rows_.bytes().first(batch.size() * columns * sizeof(float)));
    compute.record(*copied_);
  }
}

}  // namespace canopy
