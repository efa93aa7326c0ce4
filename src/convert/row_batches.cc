#include "src/convert/row_batches.h"

#include <algorithm>
#include <array>
#include <exception>
#include <thread>

#include "src/checkpoint/checkpoint.h"

namespace canopy {

namespace {

constexpr std::size_t kBatchBytes = std::size_t{8} << 20;

/// Threads at work on a batch; joined when this goes.
class Makers {
 public:
  Makers(const TensorEntry& tensor, RowBatch& batch, int threads, const MakeRows& make) {
    const auto parts = static_cast<std::int64_t>(threads);
    batch.made.resize(static_cast<std::size_t>(threads));
    failures_.resize(batch.made.size());
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t begin = batch.count * part / parts, end = batch.count * (part + 1) / parts;
      threads_.emplace_back([&, part, begin, end] {
        const auto index = static_cast<std::size_t>(part);
        try {
          batch.made[index].bytes.clear();
          batch.made[index].row_bytes.clear();
          const std::int64_t first = batch.first + begin;
          const auto at = place_of_rows(tensor, batch.first, begin).bytes,
                     bytes = place_of_rows(tensor, first, end - begin).bytes;
          make(first, end - begin, std::span(batch.stored).subspan(at, bytes), batch.made[index]);
        } catch (...) {
          failures_[index] = std::current_exception();
        }
      });
    }
  }
  void finish() {
    threads_.clear();
    for (const std::exception_ptr& failure : failures_)
      if (failure) std::rethrow_exception(failure);
  }

 private:
  std::vector<std::exception_ptr> failures_;
  std::vector<std::jthread> threads_;  // joined before what they write to goes
};

}  // namespace

void pass_rows(WeightRows& rows, const TensorEntry& tensor, int threads, const MakeRows& make,
               const TakeBatch& take) {
  const std::int64_t all = WeightRows::rows(tensor);
  const auto most = static_cast<std::int64_t>(
      std::max<std::size_t>(1, kBatchBytes / std::max<std::size_t>(1, longest_row(tensor))));
  std::array<RowBatch, 3> batches;  // taken, made, read
  const auto read = [&](RowBatch& batch, std::int64_t first) {
    batch.first = first;
    batch.count = std::min(most, all - first);
    if (batch.count > 0) rows.read_stored(tensor, first, batch.count, batch.stored);
  };
  RowBatch *taken = &batches[0], *made = &batches[1], *next = &batches[2];
  read(*made, 0);
  while (made->count > 0) {
    Makers makers(tensor, *made, threads, make);
    if (taken->count > 0 && !take(*taken)) return makers.finish();
    read(*next, made->first + made->count);
    makers.finish();
    std::swap(taken, made);
    std::swap(made, next);
  }
  if (taken->count > 0) take(*taken);
}

}  // namespace canopy
