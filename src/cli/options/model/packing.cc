#include "src/cli/options/model/packing.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/cli/output/table.h"
#include "src/convert/enlarge/random_checkpoint.h"

namespace canopy::cli {

namespace {

bool is_of_bf16(DType dtype) {
  const PackedFormat* const packed = find_packed_format(dtype);
  return (packed != nullptr ? packed->plain : dtype) == DType::kBF16;
}

/// Weights of a unit that are BF16, packed or not.
double bf16_weights(const UnitLayout& unit) {
  double weights = 0;
  for (const UnitTensor& matrix : unit.matrices)
    if (is_of_bf16(matrix.tensor.dtype))
      weights +=
          static_cast<double>(matrix.tensor.shape[0]) * static_cast<double>(matrix.tensor.shape[1]);
  return weights;
}

/// A curve with `more` seconds at each size, none below zero.
Curve raised(const Curve& curve, Seconds more) {
  std::vector<Sample> samples(curve.knots().begin(), curve.knots().end());
  if (samples.empty()) return curve;
  for (Sample& sample : samples) sample.t = std::max(Seconds(0), sample.t + more);
  return Curve::fit(samples);
}

}  // namespace

std::optional<DType> bf16_form(const SweepLayout& target) {
  std::optional<DType> form;
  for (const UnitLayout& unit : target.units)
    for (const UnitTensor& matrix : unit.matrices) {
      if (matrix.expert >= 0) return std::nullopt;
      // A matrix that a codec made no smaller stays as it was.
      const DType dtype = matrix.tensor.dtype;
      if (is_of_bf16(dtype) && (!form || is_packed(dtype))) form = dtype;
    }
  return form;
}

OtherForm other_form(const SweepLayout& target, const HardwareProfile& profile,
                     const CodecCost& from, const CodecCost& to) {
  const Seconds per_weight = to.per_weight - from.per_weight;
  HardwareProfile changed = profile;
  std::vector<char> attention(profile.layers.size()), mlp(profile.layers.size());  // were raised
  double head = 0, all = 0;
  for (const UnitLayout& unit : target.units) {
    const double weights = bf16_weights(unit);
    all += weights;
    if (unit.unit.kind == UnitKind::kHead) {
      head += weights;
      continue;
    }
    const std::size_t kind = std::min(target.config.kind(unit.unit.layer), attention.size() - 1);
    const bool of_mlp = unit.unit.kind == UnitKind::kMlp;
    if (std::exchange((of_mlp ? mlp : attention)[kind], 1)) continue;
    Curve& curve = of_mlp ? changed.layers[kind].mlp : changed.layers[kind].attention;
    curve = raised(curve, weights * per_weight);
  }
  changed.head = raised(profile.head, head * per_weight);
  if (!profile.at_rest.knots().empty()) changed.at_rest = raised(profile.at_rest, all * per_weight);
  return {lay_out_random_checkpoint({target.config, to.dtype}, LayerBytes::kOwn, "laid out"),
          std::move(changed)};
}

const FormSeconds& best_form(const std::vector<FormSeconds>& forms) {
  constexpr double kWorthwhile = .99;
  const FormSeconds* best = nullptr;
  for (const FormSeconds& form : forms)
    if (form.seconds && (best == nullptr || *form.seconds < kWorthwhile * *best->seconds))
      best = &form;
  require(best != nullptr, "a model that is planned fits in the form that it has");
  return *best;
}

std::string form_name(DType form) {
  const PackedFormat* const packed = find_packed_format(form);
  return packed != nullptr ? packed->codec : name(form);
}

std::string packing_words(const std::vector<FormSeconds>& forms, DType now) {
  std::string words = "packing: products of one row, unpacking included, take ";
  for (const FormSeconds& form : forms)
    words += (&form == &forms.front() ? "" : ", ") + form_name(form.cost.dtype) + " (" +
             fixed(form.cost.bits, 2) + " bits a weight) at " +
             fixed(2e-9 / form.cost.per_weight.count(), 1) + " GB/s of BF16" +
             (form.seconds ? "" : ", which does not fit");
  const DType best = best_form(forms).cost.dtype;
  if (best == now) return words + "; no other form pays here";
  return words + "; here " +
         (best == DType::kBF16 ? "BF16 (canopy unpack)"
                               : "canopy pack --codec " + form_name(best)) +
         " pays most";
}

}  // namespace canopy::cli
