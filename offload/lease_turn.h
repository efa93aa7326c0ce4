#pragma once
// Private to the sources that lend units in a cycle.
#include <cstddef>
#include <optional>
#include <string>

#include "src/base/error.h"

namespace canopy {

/// Turn of the units: they are lent in the order of the sweep, round and round, one at a time.
class LeaseTurn {
 public:
  explicit LeaseTurn(std::size_t units) : units_(units) {}

  /// Throws Error unless `index` is the next and none is out.
  void expect(std::size_t index) const {
    if (index != next_)
      throw Error("unit " + std::to_string(index) +
                  " was acquired out of turn: " + std::to_string(next_) + " is next in the cycle");
    if (lent_)
      throw Error("a unit was acquired while unit " + std::to_string(*lent_) + " is on lease");
  }
  void lend(std::size_t index) {
    lent_ = index;
    next_ = (index + 1) % units_;
  }
  void give_back() { lent_.reset(); }
  bool is_lent() const { return lent_.has_value(); }
  std::size_t next() const { return next_; }
  void restart() { next_ = 0; }

 private:
  std::size_t units_, next_ = 0;
  std::optional<std::size_t> lent_;
};

}  // namespace canopy
