#pragma once
#include <cstdint>
#include <filesystem>

#include "src/base/file.h"

namespace canopy {

/// An output until it is complete: PATH.canopy-partial, next to the place that it will take. What
/// has that name already is an earlier run's, and is replaced, or a directory taken over; a run
/// that still writes it holds a lock. One thread.
class Partial {
 public:
  enum class Kind : std::uint8_t { kFile, kDirectory };
  /// Treatment of a directory that has the name already.
  enum class Leftover : std::uint8_t { kReplaced, kTaken };
  /// Makes it, empty, or takes what was left and keeps that until drop(). Throws Error if it cannot
  /// be made, or another run is writing it.
  Partial(std::filesystem::path path, Kind kind, Leftover leftover = Leftover::kReplaced);
  ~Partial();  // removes it unless it was published or is kept
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::filesystem::path& name() const { return name_; }
  int descriptor() const { return lock_.get(); }  // a file's is open for writing
  /// Gives the output its own name, in place of what has that. Throws Error.
  void publish();
  void keep() { kept_ = true; }
  void drop() { kept_ = false; }

 private:
  std::filesystem::path path_, name_;
  UniqueFd lock_;
  bool published_ = false, kept_ = false;
};

}  // namespace canopy
