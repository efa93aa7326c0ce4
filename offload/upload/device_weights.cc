#include "offload/upload/device_weights.h"

#include <algorithm>
#include <array>

#include "offload/io/slab_pins.h"
#include "src/base/error.h"
#include "src/machine/host_slab.h"

namespace canopy {

namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

/// Cuts the table into pieces of at most `bytes` bytes, or of one row where a row is longer.
std::vector<TensorEntry> slices(const TensorEntry& table, std::size_t bytes) {
  const std::int64_t unit = slice_unit(table);
  const std::int64_t rows =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes / longest_row(table)) / unit) *
      unit;
  std::vector<TensorEntry> pieces;
  for (std::int64_t first = 0; first < table.shape[0]; first += rows)
    pieces.push_back(rows_of(table, first, std::min(rows, table.shape[0] - first)));
  return pieces;
}

/// Tensors that are read as one and where they go.
struct Load {
  std::vector<const TensorEntry*> tensors;
  std::vector<std::size_t> at;  // on the device
};

/// Disk -> pinned slab -> device, one slab being read while the other is copied.
class Loader {
 public:
  Loader(Device& device, ReadPump& pump, std::size_t slab_bytes, Notes& notes)
      : device_(device), pump_(pump), stream_(device.make_stream("load")) {
    for (Half& half : halves_) {
      half.slab = HostSlab(slab_bytes);
      half.pins = SlabPins(device, half.slab.bytes());
      half.pins.lock_all(notes);
      half.copied = device.make_event();
    }
  }
  ~Loader() { finish_quietly(*stream_); }

  void run(const Load& load, std::byte* memory, const std::function<void(std::size_t)>& progress) {
    Half& half = halves_[turn_];
    turn_ = 1 - turn_;
    half.copied->wait();
    const ReadLayout read = lay_out(load.tensors, kReadAlignment);
    read_all(pump_, read, half.slab.data(), progress);
    for (std::size_t i = 0; i < load.tensors.size(); ++i)
      device_.upload(*stream_, memory + load.at[i],
                     {half.slab.data() + read.slab_at[i], load.tensors[i]->bytes});
    stream_->record(*half.copied);
  }
  void finish() { stream_->synchronize(); }

 private:
  struct Half {
    HostSlab slab;
    SlabPins pins;
    std::unique_ptr<Event> copied;
  };
  Device& device_;
  ReadPump& pump_;
  std::array<Half, 2> halves_;
  std::size_t turn_ = 0;
  std::unique_ptr<Stream> stream_;
};

std::size_t vector_bytes(std::span<const UnitLayout> units) {
  std::size_t bytes = 0;
  for (const UnitLayout& unit : units)
    for (const UnitTensor& vector : unit.vectors)
      bytes += aligned(row_bytes(DType::kF32, vector_length(vector.tensor)));
  return bytes;
}

/// Fills `memory` with what is read; vectors and companions, which come later, make up the rest.
void read_loads(std::span<const Load> loads, std::size_t slab_bytes, Device& device, ReadPump& pump,
                const Loading& loading, Buffer& memory) {
  const std::uint64_t all = memory.bytes();
  std::uint64_t done = 0;
  Loader loader(device, pump, slab_bytes, loading.notes);
  for (const Load& load : loads) {
    loader.run(load, memory.data(), [&](std::size_t read) {
      loading.check_in(std::min<std::uint64_t>(done + read, all), all);
    });
    for (const TensorEntry* tensor : load.tensors) done += tensor->bytes;
  }
  loader.finish();
}

/// Queues the copies of companions, unit by unit as these lie from `at` on.
void upload_companions_of_units(Device& device, Stream& stream, const SweepLayout& sweep,
                                const Residency& residency, std::byte* at) {
  for (std::size_t i = 0; i < sweep.units.size(); ++i) {
    if (residency.unit[i] != Tier::kDevice) continue;
    const UnitLayout& unit = sweep.units[i];
    for (std::size_t m = 0; m < unit.matrices.size(); ++m)
      upload_companion(device, stream, at + unit.slot.at[m], unit.matrices[m].tensor);
    at += unit.slot.bytes;
  }
}

}  // namespace

std::size_t DeviceWeights::bytes_needed(const SweepLayout& sweep, const Residency& residency) {
  std::size_t bytes = vector_bytes(sweep.units);
  for (std::size_t i = 0; i < sweep.units.size(); ++i)
    if (residency.unit[i] == Tier::kDevice) bytes += sweep.units[i].slot.bytes;
  return bytes + (residency.table == Tier::kDevice ? device_bytes(sweep.embedding) : 0);
}

DeviceWeights::DeviceWeights(Device& device, const SweepLayout& sweep, const Residency& residency,
                             ReadPump& pump, const Loading& loading)
    : memory_(device.allocate(bytes_needed(sweep, residency))), units_(sweep.units.size()) {
  const std::vector<UnitLayout>& units = sweep.units;
  // Places everything: first what is read as one, then the vectors.
  std::vector<Load> loads;
  std::size_t end = 0, slab_bytes = 0;
  const auto add = [&](Load load) {
    slab_bytes = std::max(slab_bytes, lay_out(load.tensors, kReadAlignment).slab_bytes);
    loads.push_back(std::move(load));
  };
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (residency.unit[i] != Tier::kDevice) continue;
    const SlotLayout& slot = units[i].slot;
    place_matrices(units[i], memory_.data() + end, units_[i]);
    Load load;
    for (std::size_t m = 0; m < slot.at.size(); ++m) {
      load.tensors.push_back(&units[i].matrices[m].tensor);
      load.at.push_back(end + slot.at[m]);
    }
    add(std::move(load));
    end += slot.bytes;
  }
  std::byte* const table_at = memory_.data() + end;
  std::vector<TensorEntry> pieces;
  if (residency.table == Tier::kDevice) {
    const TensorEntry& whole = sweep.embedding;
    table_ = matrix_on_device(table_at, whole);
    pieces = slices(whole, slab_bytes);  // a staging slab is planned to hold a unit
    for (const TensorEntry& piece : pieces) {
      add({{&piece}, {end}});
      end += piece.bytes;
    }
    end += device_bytes(whole) - whole.bytes;
  }

  read_loads(loads, slab_bytes, device, pump, loading, memory_);

  // The vectors come through host memory as f32.
  const HostWeights vectors(device, sweep, all_resident(sweep, Tier::kDevice), pump,
                            {loading.notes, {}, loading.stop});
  const auto stream = device.make_stream("load");
  for (std::size_t i = 0; i < units.size(); ++i)
    for (const UnitTensor& vector : units[i].vectors) {
      const ConstTensorView from = vectors.unit(i).vector(vector.role);
      device.upload(*stream, memory_.data() + end, {from.data(), from.bytes()});
      units_[i].add(vector.role, vector_at(memory_.data() + end, vector.tensor));
      end += aligned(from.bytes());
    }
  upload_companions_of_units(device, *stream, sweep, residency, memory_.data());
  if (residency.table == Tier::kDevice)
    upload_companion(device, *stream, table_at, sweep.embedding);
  stream->synchronize();
  loading.check_in(memory_.bytes(), memory_.bytes());
}

}  // namespace canopy
