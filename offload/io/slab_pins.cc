#include "offload/io/slab_pins.h"

#include <algorithm>
#include <string>

#include "src/base/error.h"

namespace canopy {

bool SlabPins::lock_next(std::size_t end, Notes& notes) {
  if (locked_ >= std::min(end, pages_.size())) return false;
  const auto piece = pages_.subspan(locked_, std::min(piece_, pages_.size() - locked_));
  locked_ += piece.size();
  try {
    pins_.push_back(device_->pin(piece));
  } catch (const Error& refused) {
    locked_ = pages_.size();
    add_note(notes, std::string(refused.what()) +
                        ". Weights go through the driver's own buffers instead, which is slower");
  }
  return true;
}

}  // namespace canopy
