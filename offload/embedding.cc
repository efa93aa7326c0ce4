#include "offload/embedding.h"

#include <algorithm>

#include "offload/unit_layout.h"
#include "src/base/error.h"
#include "src/base/formats/packed_format.h"

namespace canopy {

namespace {

void check_ids(std::span<const TokenId> ids, std::int64_t vocab) {
  for (const TokenId id : ids)
    if (id < 0 || id >= vocab)
      throw Error("token " + std::to_string(id) + " is outside the vocabulary of " +
                  std::to_string(vocab));
}

/// The most that the aligned reads of a batch of rows can take.
std::size_t staging_bytes(const TensorEntry& table) {
  const std::size_t row = longest_row(table);
  return EmbeddingUpload::kBatch * ((row + kReadAlignment - 1) / kReadAlignment + 1) *
         kReadAlignment;
}

/// Calls body(part of ids, rows of out) for at most `most` at a time.
template <class Body>
void in_batches(std::span<const TokenId> ids, const TensorView& out, std::size_t most,
                const Body& body) {
  for (std::size_t first = 0; first < ids.size(); first += most) {
    const auto batch = ids.subspan(first, std::min(most, ids.size() - first));
    body(batch, out.rows(static_cast<std::int64_t>(first), std::ssize(batch)));
  }
}

}  // namespace

EmbeddingLookup::EmbeddingLookup(Device& device, WeightView table)
    : device_(device),
      table_(table),
      ids_on_device_(device.allocate(bytes_needed())),
      read_(device.make_event()) {}

EmbeddingLookup::~EmbeddingLookup() { wait_quietly(*read_); }

void EmbeddingLookup::look_up(std::span<const TokenId> ids, Stream& compute, TensorView out) {
  if (ids.empty()) return;
  check_ids(ids, table_.rows());
  read_->wait();
  ids_.assign(ids.begin(), ids.end());
  in_batches(ids_, out, kIds, [&](std::span<const TokenId> batch, const TensorView& rows) {
    device_.upload(compute, ids_on_device_.data(), std::as_bytes(batch));
    device_.ops().embed(compute, table_,
                        ConstTensorView(ids_on_device_.data(), DType::kI32, {std::ssize(batch)}),
                        rows);
  });
  compute.record(*read_);
}

EmbeddingUpload::EmbeddingUpload(Device& device, const TensorEntry& table)
    : device_(device),
      dtype_(table.dtype),
      columns_(static_cast<std::size_t>(table.shape[1])),
      rows_(bytes_needed(table)),
      copied_(device.make_event()) {}

EmbeddingUpload::~EmbeddingUpload() { wait_quietly(*copied_); }

std::size_t EmbeddingUpload::bytes_needed(const TensorEntry& table) {
  return kBatch * row_bytes(DType::kF32, table.shape[1]);
}

void EmbeddingUpload::operator()(std::span<const StoredRow> rows, Stream& compute, TensorView out) {
  copied_->wait();  // the batch before has left rows_
  auto* const values = reinterpret_cast<float*>(rows_.data());
  for (std::size_t i = 0; i < rows.size(); ++i)
    row_as_f32(dtype_, rows[i], {values + i * columns_, columns_});
  device_.upload(compute, out.data(), rows_.bytes().first(rows.size() * columns_ * sizeof(float)));
  compute.record(*copied_);
}

HostEmbedding::HostEmbedding(Device& device, const TensorEntry& entry, WeightView table)
    : table_(table), upload_(device, entry) {}

void HostEmbedding::look_up(std::span<const TokenId> ids, Stream& compute, TensorView out) {
  check_ids(ids, table_.rows());
  in_batches(ids, out, EmbeddingUpload::kBatch,
             [&](std::span<const TokenId> batch, const TensorView& to) {
               std::vector<StoredRow> rows;
               for (const TokenId id : batch) rows.push_back(table_.row(id));
               upload_(rows, compute, to);
             });
}

EmbeddingReader::EmbeddingReader(Device& device, const SweepLayout& sweep,
                                 std::unique_ptr<ReadEngine> engine)
    : table_(sweep.embedding),
      engine_(std::move(engine)),
      pump_(*engine_, sweep.files, staging_bytes(table_) / EmbeddingUpload::kBatch,
            [](std::uint64_t) { return std::string("rows of the embedding table"); }),
      staging_(staging_bytes(table_)),
      upload_(device, table_) {}

std::size_t EmbeddingReader::bytes_needed(const TensorEntry& table) {
  return staging_bytes(table) + EmbeddingUpload::bytes_needed(table);
}

void EmbeddingReader::look_up(std::span<const TokenId> ids, Stream& compute, TensorView out) {
  check_ids(ids, table_.shape[0]);
  in_batches(ids, out, EmbeddingUpload::kBatch,
             [&](std::span<const TokenId> batch, const TensorView& to) {
               std::vector<TensorEntry> entries(batch.size(), table_);
               std::vector<const TensorEntry*> wanted;
               for (std::size_t i = 0; i < entries.size(); ++i) {
                 const ByteRange place = place_of_rows(table_, batch[i], 1);
                 entries[i].offset += place.offset;
                 entries[i].bytes = place.bytes;
                 wanted.push_back(&entries[i]);
               }
               const ReadLayout layout = lay_out(wanted, kReadAlignment);
               read_all(pump_, layout, staging_.data(), [](std::size_t) {});
               disk_bytes_ = pump_.disk_bytes();
               std::vector<StoredRow> rows;
               for (std::size_t i = 0; i < entries.size(); ++i)
                 rows.push_back(row_at(staging_.data() + layout.slab_at[i], table_, batch[i]));
               upload_(rows, compute, to);
             });
}

}  // namespace canopy
