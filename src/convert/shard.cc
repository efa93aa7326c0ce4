#include "src/convert/shard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "src/base/error.h"
#include "src/checkpoint/fingerprint.h"
#include "src/checkpoint/model_tensors.h"
#include "src/checkpoint/sparse/shard_label.h"
#include "src/checkpoint/sparse/shard_rows.h"

namespace canopy {

namespace fs = std::filesystem;

namespace {

struct Bytes {
  std::uint64_t begin = 0, end = 0;
};

/// Returns the bytes of each file that hold rows of other ranks, by place.
std::vector<std::vector<Bytes>> rows_of_others(const Checkpoint& model, const Share& share) {
  std::vector<std::vector<Bytes>> of_file(model.files().size());
  for_each_tensor(model.config(), [&](const ModelTensor& tensor) {
    if (!is_cut_by_rows(tensor.spec->role)) return;
    const TensorEntry* const whole = model.find(tensor.name());
    require(whole != nullptr, "a model has the tensors of its config");
    if (share.block % slice_unit(*whole) != 0)
      throw Error("tensor " + whole->name + " of " + dtype_name(*whole) +
                  " is cut at multiples of " + std::to_string(slice_unit(*whole)) +
                  " rows, and a share of the rows at multiples of " + std::to_string(share.block));
    const RowRange own = share.own(whole->shape[0]);
    const auto leave_out = [&](std::int64_t first, std::int64_t rows) {
      if (rows == 0) return;
      const ByteRange place = place_of_rows(*whole, first, rows);
      const std::uint64_t begin = whole->offset + place.offset;
      of_file[static_cast<std::size_t>(whole->file)].push_back({begin, begin + place.bytes});
    };
    leave_out(0, own.first);
    leave_out(own.first + own.count, whole->shape[0] - own.first - own.count);
  });
  for (std::vector<Bytes>& bytes : of_file) std::ranges::sort(bytes, {}, &Bytes::begin);
  return of_file;
}

/// Copies a file but for some of its bytes, where it has holes then. Reports each piece.
class SparseCopy {
 public:
  SparseCopy(const fs::path& from, const fs::path& to)
      : from_(from),
        to_(to),
        in_(open_file(from)),
        out_(open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) {
    const auto bytes = static_cast<off_t>(regular_file_bytes(in_.get(), from));
    if (!out_.is_open() || ftruncate(out_.get(), bytes) != 0) fail(to_);
  }

  template <class OnPiece>
  void copy(Bytes range, const OnPiece& on_piece) {
    while (range.begin < range.end) {
      const std::size_t piece = std::min<std::uint64_t>(buffer_.size(), range.end - range.begin);
      const auto at = static_cast<off_t>(range.begin);
      const ssize_t got = pread(in_.get(), buffer_.data(), piece, at);
      if (got < 0) fail(from_);
      if (got == 0) throw Error(from_.string() + " has become shorter while it was read");
      for (ssize_t done = 0; done < got;) {
        const ssize_t wrote = pwrite(out_.get(), buffer_.data() + done,
                                     static_cast<std::size_t>(got - done), at + done);
        if (wrote < 0) fail(to_);
        done += wrote;
      }
      range.begin += static_cast<std::uint64_t>(got);
      on_piece(static_cast<std::uint64_t>(got));
    }
  }
  void finish() {
    if (fsync(out_.get()) != 0) fail(to_);
  }

 private:
  [[noreturn]] static void fail(const fs::path& file) {
    throw Error("cannot copy " + file.string() + ": " + std::strerror(errno));
  }
  const fs::path from_, to_;
  const UniqueFd in_, out_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(std::size_t{1} << 20);
};

/// The bytes of a file that are not among `others`, which lie in order.
std::vector<Bytes> rest_of(std::uint64_t bytes, const std::vector<Bytes>& others) {
  std::vector<Bytes> rest;
  std::uint64_t at = 0;
  for (const Bytes& other : others) {
    if (other.begin > at) rest.push_back({at, other.begin});
    at = std::max(at, other.end);
  }
  if (at < bytes) rest.push_back({at, bytes});
  return rest;
}

/// Copies what a directory has next to its weights: config, tokenizer, templates, an index.
void copy_other_files(const Checkpoint& model, const fs::path& directory) {
  if (!fs::is_directory(model.root())) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(model.root())) {
    const std::string extension = entry.path().extension();
    const bool is_text = extension == ".json" || extension == ".jinja" || extension == ".txt" ||
                         extension == ".model";
    const fs::path name = entry.path().filename();
    if (!entry.is_regular_file() || !is_text || name == kShardFile || name == kShardRowsFile)
      continue;
    write_text_file(directory / entry.path().filename(),
                    read_file(entry.path(), kMostTokenizerBytes, FileKind::kOfModel));
  }
}

}  // namespace

ShardReport write_shard(const Checkpoint& model, const Share& share, const fs::path& output,
                        const Progress& progress) {
  require_valid(share);
  const auto others = rows_of_others(model, share);
  ShardReport report;
  std::vector<std::vector<Bytes>> own;
  for (std::size_t i = 0; i < others.size(); ++i) {
    const std::uint64_t bytes = fs::file_size(model.files()[i]);
    report.source_bytes += bytes;
    own.push_back(rest_of(bytes, others[i]));
    for (const Bytes& range : own.back()) report.bytes += range.end - range.begin;
  }
  constexpr std::uint64_t kOtherFiles = 64u << 20;
  StagedOutput staged(output, StagedOutput::Kind::kDirectory, report.bytes + kOtherFiles);
  std::uint64_t done = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const fs::path& file = model.files()[i];
    SparseCopy copy(file, staged.partial() / file.filename());
    for (const Bytes& range : own[i])
      copy.copy(range, [&](std::uint64_t piece) {
        done += piece;
        if (progress) progress(done, report.bytes);
      });
    copy.finish();
  }
  copy_other_files(model, staged.partial());
  const auto rows = digits_of_rows(model, [&](std::int64_t total) {
    const RowRange range = share.own(total);
    return OwnRows{range.first, range.count};
  });
  const ShardLabel label{share.rank, share.parts, share.block, fingerprint(model)};
  write_text_file(staged.partial() / kShardFile, to_json(label));
  write_text_file(staged.partial() / kShardRowsFile, rows_to_json(rows));
  staged.publish();
  return report;
}

}  // namespace canopy
