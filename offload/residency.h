#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "offload/unit_layout.h"

namespace canopy {

/// Place of a unit's matrices between two sweeps. On a device that shares the host's memory only
/// those of kDisk travel; on another those of kHost do, too, and those of kDisk through the host.
enum class Tier : std::uint8_t { kDisk, kHost, kDevice };

struct Residency {
  std::vector<Tier> unit;    // of the sweep
  Tier table = Tier::kDisk;  // of the embedding: from disk, rows are read when they are needed
};

/// All on disk but the vectors.
Residency none_resident(const SweepLayout& sweep);
/// Everything in host memory, or in that of the device.
Residency all_resident(const SweepLayout& sweep, Tier tier = Tier::kHost);
/// Keeps as many bytes of units as `bytes` hold (to within one unit), spread evenly over the sweep:
/// while units that rest are computed, others must be arriving, and a ring holds few of them. A
/// head that is also the embedding table rests first, where it takes no more than half: its rows
/// are then at hand too. Units that are `on_device` stay there. One of the others is read in any
/// case.
Residency spread_resident(const SweepLayout& sweep, std::size_t bytes,
                          std::span<const Tier> on_device = {});
/// Keeps what a model of at least two layers drafts with: the head and the embedding table, then
/// whole layers, the first and the last, the second and so on, as many as `bytes` hold, since what
/// is left out of a forward does least harm in the middle (docs/results/methods.md). One layer
/// travels in any case; the head, the table, the first layer and, of three, the last one stay in
/// any case. On a device with memory of its own (Tier::kDevice) all others, and the table, are in
/// host memory.
Residency ends_resident(const SweepLayout& sweep, std::size_t bytes, Tier tier = Tier::kHost);
/// Bytes of those weights where `layers` layers stay, or the fewest that stay in any case.
std::size_t ends_bytes(const SweepLayout& sweep, int layers, Tier tier = Tier::kHost);
/// Keeps as many bytes of units as `bytes` hold on a device with memory of its own, spread evenly,
/// too; all others, and the table, are in host memory. One unit travels in any case.
Residency spread_on_device(const SweepLayout& sweep, std::size_t bytes);

/// The part of a residency that stays as it is where units come and go: the head, if it is also the
/// embedding table and that rests. All others are on disk.
Residency fixed_part(const SweepLayout& sweep, const Residency& residency);
/// Chooses among the units of `tier` that may change: the one whose change leaves the units that
/// rest spread most evenly over the sweep, so that the next change is as good. Nothing: there is
/// none. `may_change`: by unit.
std::optional<std::size_t> next_change(const SweepLayout& sweep, const Residency& residency,
                                       Tier tier, const std::vector<bool>& may_change);
/// Chooses among the units that travel the next that may rest in `tier`, kHost or kDevice, where
/// `bytes` bytes are left there, by next_change(). Nothing: none fits; one travels in any case.
std::optional<std::size_t> next_to_rest(const SweepLayout& sweep, const Residency& residency,
                                        std::size_t bytes, Tier tier = Tier::kHost);
/// Chooses among the units in host memory that may change the next that travels, to make room for
/// `bytes`: by next_change() of the smallest that are large enough, and those up to a quarter
/// larger, or of all where none is. Nothing: there is none.
std::optional<std::size_t> next_to_travel(const SweepLayout& sweep, const Residency& residency,
                                          std::size_t bytes, std::vector<bool> may_change);
/// Lets as many bytes more rest as `bytes` hold, unit by unit.
Residency filled(const SweepLayout& sweep, Residency residency, std::size_t bytes,
                 Tier tier = Tier::kHost);
/// Bytes of a unit that rests there.
std::size_t bytes_at_rest(const UnitLayout& unit, Tier tier);

/// Bytes that are read in one sweep.
std::size_t travelling_bytes(const SweepLayout& sweep, const Residency& residency);
/// The least ring that reads one such unit while another is in use: twice the largest.
std::size_t least_ring(const SweepLayout& sweep, const Residency& residency);

/// Bytes that go to the device in one sweep.
std::size_t uploaded_bytes(const SweepLayout& sweep, const Residency& residency);
/// The least device ring that brings one unit while another is in use.
std::size_t least_device_ring(const SweepLayout& sweep, const Residency& residency);

}  // namespace canopy
