#include "src/cli/options/model/packing.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/base/error.h"
#include "src/cli/output/table.h"
#include "src/convert/enlarge/random_checkpoint.h"

namespace canopy::cli {

namespace {

double weights_of(const TensorEntry& matrix) {
  return static_cast<double>(matrix.shape[0]) * static_cast<double>(matrix.shape[1]);
}
/// Weights of a unit that are of a plain format, packed or not.
double weights_of(const UnitLayout& unit, DType plain) {
  double weights = 0;
  for (const UnitTensor& matrix : unit.matrices)
    if (plain_form(matrix.tensor.dtype) == plain) weights += weights_of(matrix.tensor);
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

DType plain_form(DType form) {
  const PackedFormat* const packed = find_packed_format(form);
  return packed != nullptr ? packed->plain : form;
}

std::optional<DType> packing_form(const SweepLayout& target) {
  std::map<DType, double> weights;  // of each plain format
  for (const UnitLayout& unit : target.units)
    for (const UnitTensor& matrix : unit.matrices) {
      if (matrix.expert >= 0) return std::nullopt;
      const DType plain = plain_form(matrix.tensor.dtype);
      if (plain == DType::kBF16 || find_fp8_format(plain) != nullptr)
        weights[plain] += weights_of(matrix.tensor);
    }
  const auto most = [&](bool fp8) {
    std::optional<DType> plain;
    for (const auto& [dtype, count] : weights)
      if ((find_fp8_format(dtype) != nullptr) == fp8 && (!plain || count > weights[*plain]))
        plain = dtype;
    return plain;
  };
  std::optional<DType> form = most(true);
  if (!form) form = most(false);
  // A matrix that a codec made no smaller stays as it was.
  for (const UnitLayout& unit : target.units)
    for (const UnitTensor& matrix : unit.matrices)
      if (is_packed(matrix.tensor.dtype) && plain_form(matrix.tensor.dtype) == form)
        return matrix.tensor.dtype;
  return form;
}

OtherForm other_form(const SweepLayout& target, const HardwareProfile& profile,
                     const CodecCost& from, const CodecCost& to) {
  const Seconds per_weight = to.per_weight - from.per_weight;
  HardwareProfile changed = profile;
  std::vector<char> attention(profile.layers.size()), mlp(profile.layers.size());  // were raised
  double head = 0, all = 0;
  for (const UnitLayout& unit : target.units) {
    const double weights = weights_of(unit, plain_form(to.dtype));
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
  return {lay_out_random_checkpoint({target.config, to.dtype, target.embedding.dtype},
                                    LayerBytes::kOwn, "laid out"),
          std::move(changed)};
}

const FormSeconds& best_form(const std::vector<FormSeconds>& forms, DType now) {
  constexpr double kWorthwhile = .95;  // predictions may be off by so much
  const FormSeconds *present = nullptr, *best = nullptr;
  for (const FormSeconds& form : forms) {
    if (!form.seconds) continue;
    if (form.cost.dtype == now) present = &form;
    if (best == nullptr || *form.seconds < *best->seconds) best = &form;
  }
  require(present != nullptr, "a model that is planned fits in the form that it has");
  return *best->seconds < kWorthwhile * *present->seconds ? *best : *present;
}

std::string form_name(DType form) {
  const PackedFormat* const packed = find_packed_format(form);
  return packed != nullptr ? packed->codec : name(form);
}

std::string packing_words(const std::vector<FormSeconds>& forms, DType now) {
  const bool bf16 = plain_form(now) == DType::kBF16;
  const double bytes = bf16 ? 2 : 1;
  const std::string of = bf16 ? "BF16" : "FP8";
  std::string words = "packing: products of one row, unpacking included, take ";
  for (const FormSeconds& form : forms)
    words += (&form == &forms.front() ? "" : ", ") + form_name(form.cost.dtype) + " (" +
             fixed(form.cost.bits, 2) + " bits a weight) at " +
             fixed(1e-9 * bytes / form.cost.per_weight.count(), 1) + " GB/s of " + of +
             (form.seconds ? "" : ", which does not fit");
  const DType best = best_form(forms, now).cost.dtype;
  if (best == now) return words + "; no other form pays here";
  return words + "; here " +
         (is_packed(best) ? "canopy pack --codec " + form_name(best)
                          : form_name(best) + " (canopy unpack)") +
         " pays most";
}

}  // namespace canopy::cli
