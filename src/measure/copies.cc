#include "src/measure/copies.h"

#include <algorithm>
#include <chrono>

#include "offload/io/slab_pins.h"
#include "src/machine/host_slab.h"

namespace canopy {

namespace {

template <class Copy>
double best_rate(Stream& stream, std::size_t bytes, const Copy& copy) {
  Seconds least = Seconds::max();
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    copy();
    stream.synchronize();
    least = std::min(least, Seconds(std::chrono::steady_clock::now() - start));
  }
  return static_cast<double>(bytes) / least.count();
}

}  // namespace

CopyRates measure_copies(Device& device, std::size_t bytes) {
  const auto stream = device.make_stream("copies");
  const Buffer there = device.allocate(bytes);
  const HostSlab here(bytes);
  const auto up = [&] {
    return best_rate(*stream, bytes, [&] { device.upload(*stream, there.data(), here.bytes()); });
  };
  const auto down = [&] {
    return best_rate(*stream, bytes, [&] { device.download(*stream, here.bytes(), there.data()); });
  };
  CopyRates rates;
  rates.pageable_up = up();
  rates.pageable_down = down();
  Notes notes;
  SlabPins pins(device, here.bytes());
  pins.lock_all(notes);
  if (!notes.empty()) rates.refused = notes.front();
  rates.up = up();
  rates.down = down();
  return rates;
}

}  // namespace canopy
