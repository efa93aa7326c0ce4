#include "src/text/bounds.h"

#include <string>
#include <utility>

#include "src/base/error.h"

namespace canopy::text {

Bounds::Bounds(std::size_t bytes, std::stop_token stop)
    : most_(8 * bytes + 64), stop_(std::move(stop)) {}

void Bounds::check(std::size_t bytes) const {
  if (stop_.stop_requested()) throw Stopped();
  if (bytes > most_)
    throw Error("this tokenizer makes texts more than eight times as long: of " +
                std::to_string((most_ - 64) / 8) + " bytes more than " + std::to_string(most_));
}

}  // namespace canopy::text
