#include "src/convert/pack/pack.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/size_text.h"
#include "src/base/utf8.h"
#include "src/checkpoint/families.h"
#include "src/checkpoint/fingerprint.h"
#include "src/checkpoint/model_tensors.h"
#include "src/checkpoint/packed_tensors.h"
#include "src/convert/pack/checksum.h"
#include "src/convert/pack/pack_journal.h"
#include "src/convert/pack/pack_row.h"
#include "src/convert/pack/packed_file.h"
#include "src/convert/pack/sweep_order.h"
#include "src/convert/row_batches.h"
#include "src/convert/safetensors/hf_files.h"
#include "src/convert/safetensors/safetensors_writer.h"
#include "src/convert/weight_rows.h"

namespace canopy {

namespace {

// Config and tokenizer: far below this for any model.
constexpr std::uint64_t kOtherFiles = std::uint64_t{64} << 20;

constexpr const char* kWeights = "model.safetensors";
/// Raised when pack() writes other bytes of the same model: what a cut run left is then not taken.
constexpr int kPackFormat = 1;
/// A step of the journal is units of 1/kSteps of the model's bytes or more: the syncs take little
/// time next to the work, and a cut costs little of it.
constexpr std::uint64_t kSteps = 64;

/// The codec by which a packed file names such a format.
std::string codec_of(DType dtype) {
  const GroupedFormat* const grouped = find_grouped_format(dtype);
  return grouped ? grouped->codec : name(dtype);
}

/// The format that packs matrices of a dtype: by `codec` those that it is for; null where none
/// does.
const PackedFormat* format_for(DType dtype, std::string_view codec) {
  if (const PackedFormat* const named = find_codec(codec, dtype)) return named;
  const auto* const first = std::ranges::find(kPackedFormats, dtype, &PackedFormat::plain);
  return first == kPackedFormats.end() ? nullptr : &*first;
}

/// Gives `out` the values of such rows as f32.
void rows_as_f32(const TensorEntry& tensor, std::span<const std::byte> stored,
                 std::vector<std::byte>& out) {
  const auto columns = static_cast<std::size_t>(tensor.shape[1]);
  const std::size_t row = place_of_rows(tensor, 0, 1).bytes;
  std::vector<float> values(columns);
  out.resize(stored.size() / row * columns * sizeof(float));
  for (std::size_t at = 0, to = 0; at < stored.size(); at += row, to += columns * sizeof(float)) {
    row_as_f32(tensor.dtype, row_at(&stored[at], tensor, 0), values);
    std::memcpy(&out[to], values.data(), columns * sizeof(float));
  }
}

class Packer {
 public:
  /// Goes on after the steps of the journal, whose bytes are in the file at `path`.
  Packer(const Checkpoint& model, const SweepOrder& order, const std::filesystem::path& path,
         PackJournal& journal, std::string_view codec, int threads, const Progress& progress)
      : family_(family_of(model.config())),
        source_(source_fingerprint(model)),
        rows_(model),
        codec_(codec),
        threads_(threads),
        progress_(progress),
        journal_(journal) {
    for (const TensorEntry* tensor : order.all()) report_.source_bytes += tensor->bytes;
    for (PackStep& step : journal.begin()) {
      report_.taken_bytes = step.piece.at + step.piece.bytes;
      for (PackedTensor& tensor : step.tensors) taken_.push_back(std::move(tensor));
    }
    file_.emplace(path, names(family_, order), 0, report_.taken_bytes);
  }

  PackReport run(const SweepOrder& order) {
    for (const TensorEntry* vector : order.vectors()) put(*vector, &Packer::write_plain);
    end_unit();
    for (const auto& unit : order.units()) {
      file_->align();
      for (const TensorEntry* matrix : unit) {
        const bool by_rows = matrix->parts != nullptr;
        const bool packed = put(*matrix, by_rows ? &Packer::write_rows : &Packer::write_matrix);
        ++(by_rows ? report_.by_rows : packed ? report_.packed : report_.plain);
      }
      end_unit();
    }
    for (const auto& [name, offsets] : offsets_) {
      file_->begin();
      file_->write(std::as_bytes(std::span(offsets)));
      file_->end(name + std::string(packed::kRowOffsets), canopy::name(DType::kU32),
                 {std::ssize(offsets)});
    }
    for (const auto& [name, groups] : groups_) {
      file_->begin();
      file_->write(groups.bytes());
      file_->end(name + std::string(packed::kGroups), canopy::name(DType::kU8),
                 {std::ssize(groups.bytes())});
    }
    file_->finish(descriptions_, source_);
    report_.bytes = file_->bytes();
    return report_;
  }

 private:
  static std::vector<std::string> names(const Family& family, const SweepOrder& order) {
    std::vector<std::string> names;
    for (const TensorEntry* tensor : order.all())
      names.push_back(stored_name(family, tensor->name));
    return names;
  }

  /// Writes the bytes of a tensor, which has been begun.
  using Write = PackedTensor (Packer::*)(const TensorEntry&);

  /// Writes a tensor, or goes over one that was taken. True: it is packed.
  bool put(const TensorEntry& tensor, Write write) {
    const std::string name = stored_name(family_, tensor.name);
    const bool taken = next_ < taken_.size(), by_rows = write == &Packer::write_rows;
    PackedTensor made;
    if (taken) made = std::move(taken_[next_++]);
    file_->begin();
    if (!taken) made = (this->*write)(tensor);
    const bool packed = !made.offsets.empty();
    const std::uint64_t bytes =
        packed ? made.offsets.back() * std::uint64_t{kPackedAlignment} : tensor.bytes;
    if (taken) {
      file_->pass(bytes);
      advance(tensor.bytes);
    } else {
      fresh_.push_back(made);
    }
    if (packed || by_rows) {
      const std::string codec =
          packed ? format_for(tensor.dtype, codec_)->codec : codec_of(tensor.dtype);
      file_->end(name + std::string(packed::kPayload), canopy::name(DType::kU8),
                 {static_cast<std::int64_t>(bytes)});
      descriptions_.push_back({name, {codec, tensor.shape, made.checksum}});
      if (packed) ++report_.packed_by[codec];
    } else {
      file_->end(name, stored_type(tensor).name, tensor.shape);
      descriptions_.push_back({name, {{}, {}, made.checksum}});
    }
    if (by_rows && !tensor.companion.empty()) groups_.emplace_back(name, tensor.companion);
    if (packed) offsets_.emplace_back(name, std::move(made.offsets));
    return packed;
  }

  /// Makes a step of the units since the last one, if they are long enough.
  void end_unit() {
    if (fresh_.empty() || file_->uncommitted() < report_.source_bytes / kSteps) return;
    const FilePiece piece = file_->commit();
    journal_.add({piece, std::exchange(fresh_, {})});
  }

  PackedTensor write_plain(const TensorEntry& tensor) {
    Checksum checksum;
    const auto take = [&](std::span<const std::byte> stored) {
      checksum.add(stored);
      file_->write(stored);
      advance(stored.size());
    };
    if (tensor.shape.size() <= 1)
      take(rows_.read_stored(tensor, 0));
    else
      pass_rows(
          rows_, tensor, 1, [](auto&&...) {},
          [&](const RowBatch& batch) { return take(batch.stored), true; });
    return {checksum.value(), {}};
  }

  /// Writes rows as pass_rows() gives them. Their checksum is that of their values as f32.
  PackedTensor write_rows(const TensorEntry& tensor) {
    Checksum checksum;
    const auto make = [&](std::int64_t, std::int64_t, std::span<const std::byte> stored,
                          MadeRows& made) { rows_as_f32(tensor, stored, made.bytes); };
    pass_rows(rows_, tensor, threads_, make, [&](const RowBatch& batch) {
      for (const MadeRows& made : batch.made) checksum.add(made.bytes);
      file_->write(batch.stored);
      advance(batch.stored.size());
      return true;
    });
    return {checksum.value(), {}};
  }

  /// Packs a matrix, if that gains anything.
  PackedTensor write_matrix(const TensorEntry& tensor) {
    PackedTensor made;
    if (const PackedFormat* const format = format_for(tensor.dtype, codec_))
      made = write_packed(tensor, *format);
    return made.offsets.empty() ? write_plain(tensor) : made;
  }

  /// A row that cannot be packed has no bytes.
  static void make_rows(const PackedFormat& by, std::int64_t columns,
                        std::span<const std::byte> stored, MadeRows& made) {
    visit_format(PackedFormats(), by.dtype, [&]<class Format>(Format format) {
      using Element = typename Format::Plain::Element;
      // Rows lie where a batch begins, so at whole elements.
      const std::span weights(reinterpret_cast<const Element*>(stored.data()),
                              stored.size() / sizeof(Element));
      const auto row = static_cast<std::size_t>(columns);
      for (std::size_t at = 0; at < weights.size(); at += row) {
        const std::size_t before = made.bytes.size();
        pack_row(format, weights.subspan(at, row), made.bytes);
        made.row_bytes.push_back(made.bytes.size() - before);
      }
    });
  }

  /// Without offsets, and nothing is written, where packing gains nothing.
  PackedTensor write_packed(const TensorEntry& tensor, const PackedFormat& by) {
    const std::int64_t columns = tensor.shape[1], rows = tensor.shape[0];
    Checksum checksum;
    std::vector<RowOffset> offsets{0};
    std::uint64_t bytes = 0;
    const std::uint64_t index_bytes = static_cast<std::uint64_t>(rows + 1) * sizeof(RowOffset);
    bool smaller = index_bytes < tensor.bytes;
    const std::uint64_t done_before = done_;
    const auto make = [&](std::int64_t, std::int64_t, std::span<const std::byte> stored,
                          MadeRows& made) { make_rows(by, columns, stored, made); };
    const auto take = [&](const RowBatch& batch) {
      checksum.add(batch.stored);
      for (const MadeRows& made : batch.made) smaller = smaller && take_rows(made, offsets, bytes);
      smaller = smaller && bytes + index_bytes < tensor.bytes;
      advance(batch.stored.size());
      return smaller;
    };
    if (smaller) pass_rows(rows_, tensor, threads_, make, take);
    if (smaller) return {checksum.value(), std::move(offsets)};
    file_->forget();
    done_ = done_before;
    return {};
  }

  /// False if one of the rows could not be packed, or lies further than offsets reach.
  bool take_rows(const MadeRows& made, std::vector<RowOffset>& offsets, std::uint64_t& bytes) {
    for (const std::size_t row : made.row_bytes) {
      const std::uint64_t end = offsets.back() + std::uint64_t{row} / kPackedAlignment;
      if (row == 0 || end > std::numeric_limits<RowOffset>::max()) return false;
      offsets.push_back(static_cast<RowOffset>(end));
    }
    file_->write(made.bytes);
    bytes += made.bytes.size();
    return true;
  }

  void advance(std::size_t bytes) {
    done_ += bytes;
    progress_(std::min(done_, report_.source_bytes), report_.source_bytes);
  }

  const Family& family_;
  const std::string source_;
  WeightRows rows_;
  const std::string codec_;  // "": none is named
  const int threads_;
  const Progress& progress_;
  PackJournal& journal_;
  std::optional<PackedFile> file_;
  PackReport report_;
  std::uint64_t done_ = 0;
  std::vector<PackedTensor> taken_, fresh_;  // of the cut run, and of no step yet
  std::size_t next_ = 0;                     // of taken_
  std::vector<std::pair<std::string, packed::Description>> descriptions_;
  std::vector<std::pair<std::string, std::vector<RowOffset>>> offsets_;
  std::vector<std::pair<std::string, Companion>> groups_;
};

void check_source(const Checkpoint& model) {
  for (const TensorEntry& tensor : model.tensors()) {
    if (is_packed(tensor.dtype))
      throw Error(model.root().string() + " is packed already: tensor " + in_quotes(tensor.name) +
                  " is " + name(tensor.dtype));
    if (made_by_rows(tensor.dtype) && !tensor.parts && tensor.checksum)
      throw Error(model.root().string() + " lies by rows already: tensor " +
                  in_quotes(tensor.name) + " is " + name(tensor.dtype));
    const bool fp8 = find_fp8_format(tensor.dtype) != nullptr;
    if (fp8 && tensor.scales.empty())
      throw Error(model.root().string() + ": tensor " + in_quotes(tensor.name) +
                  " is one of several whose FP8 weights lie in one tensor; packing those is not "
                  "supported");
    if ((in_blocks(tensor.dtype) || !tensor.companion.empty()) && !tensor.parts && !fp8)
      throw Error(
          model.root().string() + ": tensor " + in_quotes(tensor.name) + " is " +
          dtype_name(tensor) +
          ", which is small already; packing is for models in BF16 or FP8, such as the one that "
          "this was quantised from");
  }
  const bool mixture = model.config().experts.count > 0;
  if ((mixture || model.config().recurrent()) && !std::filesystem::is_directory(model.root()))
    throw Error(model.root().string() + ": a " +
                (mixture ? "mixture of experts" : "model with delta nets") +
                " is packed from its Hugging Face directory, not from GGUF");
}

/// Throws Error unless there are matrices that a codec which is named is for.
void check_codec(const SweepOrder& order, const Checkpoint& model, std::string_view codec) {
  if (codec.empty()) return;
  for (const auto& unit : order.units())
    for (const TensorEntry* matrix : unit)
      if (find_codec(codec, matrix->dtype) != nullptr) return;
  throw Error(model.root().string() + " has no matrix that codec " + std::string(codec) +
              " is for");
}

/// All that the bytes of a packed model follow from, in a line. Bytes of the weights are sampled: a
/// file's size and time stand for the others.
std::string identity_of(const Checkpoint& model, std::string_view codec) {
  std::vector<std::filesystem::path> files = model.files();
  for (const char* name : {"config.json", "hf_quant_config.json"})
    if (std::filesystem::exists(model.root() / name)) files.push_back(model.root() / name);
  nlohmann::json states = nlohmann::json::array();
  for (const std::filesystem::path& file : files)
    states.push_back({std::filesystem::file_size(file),
                      std::filesystem::last_write_time(file).time_since_epoch().count()});
  nlohmann::json codecs = nlohmann::json::array();  // of each plain format
  for (const PackedFormat& format : kPackedFormats)
    if (format_for(format.plain, codec) == &format) codecs.push_back(format.codec);
  return nlohmann::json{{"canopy pack", kPackFormat},
                        {"version", CANOPY_VERSION},
                        {"codecs", std::move(codecs)},
                        {"source", fingerprint(model)},
                        {"files", std::move(states)}}
      .dump();
}

/// Gives `out` the plain values of rows [first, first + count) of a packed matrix.
void unpack_rows(const TensorEntry& tensor, std::int64_t first, std::int64_t count,
                 std::span<const std::byte> stored, std::vector<std::byte>& out) {
  visit_format(PackedFormats(), tensor.dtype, [&]<class Format>(Format) {
    using Element = typename Format::Plain::Element;
    const std::int64_t columns = tensor.shape[1];
    out.resize(static_cast<std::size_t>(count * columns) * sizeof(Element));
    const std::span weights(reinterpret_cast<Element*>(out.data()), out.size() / sizeof(Element));
    std::size_t at = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::size_t bytes = place_of_rows(tensor, first + i, 1).bytes;
      unpack_row(tensor.dtype, {stored.data() + at, bytes, columns},
                 weights.subspan(static_cast<std::size_t>(i * columns),
                                 static_cast<std::size_t>(columns)));
      at += bytes;
    }
  });
}

/// Calls take(bytes) for a tensor's values in their plain form, row by row, some rows at a time.
template <class Take>
void pass_values(WeightRows& rows, const TensorEntry& tensor, int threads, const Take& take) {
  if (tensor.shape.size() <= 1) return take(rows.read_stored(tensor, 0));
  if (!is_packed(tensor.dtype) && !made_by_rows(tensor.dtype))
    return pass_rows(
        rows, tensor, 1, [](auto&&...) {},
        [&](const RowBatch& batch) { return take(batch.stored), true; });
  const auto make = [&](std::int64_t first, std::int64_t count, std::span<const std::byte> stored,
                        MadeRows& made) {
    if (is_packed(tensor.dtype))
      unpack_rows(tensor, first, count, stored, made.bytes);
    else
      rows_as_f32(tensor, stored, made.bytes);
  };
  pass_rows(rows, tensor, threads, make, [&](const RowBatch& batch) {
    for (const MadeRows& made : batch.made) take(made.bytes);
    return true;
  });
}

}  // namespace

PackReport pack(const Checkpoint& model, const std::filesystem::path& output, int threads,
                const Progress& progress, const PackNote& note, std::string_view codec) {
  require(threads > 0, "pack: needs a thread");
  check_source(model);
  const SweepOrder order(model);
  check_codec(order, model, codec);
  std::uint64_t weights = 0;
  for (const TensorEntry* tensor : order.all()) weights += tensor->bytes;
  StagedOutput staged(output, StagedOutput::Kind::kDirectory, weights + kOtherFiles,
                      StagedOutput::Existing::kRefused, StagedOutput::Leftover::kTaken);
  const std::string partial = staged.partial().string();
  PackJournal journal(staged.partial(), identity_of(model, codec));
  try {
    if (const std::string trouble = journal.trouble(staged.partial() / kWeights, weights, progress);
        !trouble.empty()) {
      note(partial + " is " + trouble + "; it is replaced, and the work begins anew");
      journal.forget();
    }
    if (journal.steps().empty()) {
      staged.keep_only({});
      staged.drop();
    } else {
      staged.keep_only({kWeights, PackJournal::kName});
      const FilePiece& last = journal.steps().back().piece;
      note("goes on with " + partial +
           ", which a run left that was cut: " + std::to_string(last.at + last.bytes) + " bytes (" +
           format_size(last.at + last.bytes) + ") are taken over");
    }
    copy_hf_files(model, staged.partial());
    const PackReport report =
        Packer(model, order, staged.partial() / kWeights, journal, codec, threads, progress)
            .run(order);
    staged.publish(PackJournal::kName);
    return report;
  } catch (...) {
    if (journal.is_of_use()) {
      staged.keep();
      note(partial + " keeps what is done: the same command goes on with it; or remove it");
    } else {
      staged.drop();
    }
    throw;
  }
}

UnpackReport unpack(const Checkpoint& model, const std::filesystem::path& output, int threads,
                    const Progress& progress) {
  require(threads > 0, "unpack: needs a thread");
  if (std::ranges::none_of(model.tensors(), [](const auto& t) { return t.checksum.has_value(); }))
    throw Error(model.root().string() + " is not packed");
  UnpackReport report;
  const Family& family = family_of(model.config());
  std::vector<PlannedTensor> planned;
  const SweepOrder order(model);
  const std::vector<const TensorEntry*> tensors = order.all();
  for (const TensorEntry* tensor : tensors) {
    StoredType type = stored_type(*tensor);
    planned.push_back(
        {stored_name(family, tensor->name), tensor->shape, type.dtype, std::move(type.name)});
    report.bytes += tensor_bytes(planned.back().dtype, tensor->shape);
  }
  StagedOutput staged(output, StagedOutput::Kind::kDirectory, report.bytes + kOtherFiles);
  copy_hf_files(model, staged.partial());
  SafetensorsWriter writer(staged.partial(), planned);
  WeightRows rows(model);
  for (const TensorEntry* tensor : tensors) {
    Checksum checksum;
    pass_values(rows, *tensor, threads, [&](std::span<const std::byte> values) {
      checksum.add(values);
      writer.write(stored_name(family, tensor->name), values);
      progress(writer.written_bytes(), report.bytes);
    });
    ++report.tensors;
    if (!tensor->checksum) continue;
    if (*tensor->checksum != checksum.value())
      throw Error("tensor " + in_quotes(tensor->name) + " of " + model.root().string() +
                  " is damaged: its checksum is not the one that was kept when it was packed; "
                  "fetch or pack the model again");
    ++report.checked;
  }
  writer.finish();
  staged.publish();
  return report;
}

}  // namespace canopy
