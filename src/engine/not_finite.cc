#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "src/engine/runtime.h"

namespace canopy {

namespace {

std::string name(const Unit& unit) {
  const std::string layer = "layer " + std::to_string(unit.layer);
  switch (unit.kind) {
    case UnitKind::kAttention:
      return "the attention of " + layer;
    case UnitKind::kMlp:
      return "the MLP of " + layer;
    case UnitKind::kHead:
      break;
  }
  return "the head";
}

}  // namespace

void Runtime::refuse_not_finite(std::span<const SequenceRows> rows, const std::stop_token& stop) {
  std::vector<float> values;
  const auto all_finite = [&] {
    const ConstTensorView hidden = target->hidden();
    values.resize(hidden.bytes() / sizeof(float));
    device->download(*compute, std::as_writable_bytes(std::span(values)), hidden.data());
    compute->synchronize();
    return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
  };
  std::string before = "the embedding of a token";  // what has just been computed
  std::optional<std::string> first;
  target->forward(rows, *compute, stop, [&](const Unit& unit) {
    if (!first && !all_finite()) first = before;
    before = name(unit);
  });
  std::string message = models.target.root().string() +
                        ": the values of this model are not all finite numbers, first those of " +
                        first.value_or("the head") +
                        ": its weights are damaged (compare the file's checksum with its source's) "
                        "or overflow";
  if (plan.kv.k == DType::kF16)
    message += "; or so does the KV cache: f16 ends at 65504, bf16 does not";
  throw Error(message);
}

}  // namespace canopy
