#pragma once
#include <optional>
#include <string>
#include <vector>

#include "planner/hardware_profile.h"
#include "src/convert/pack/codec_costs.h"
#include "src/engine/plan/plan.h"

namespace canopy::cli {

/// The form of the target's weights that codecs are for, of FP8 where it has such, else of BF16:
/// the plain one, or the format of the codec that packs them. Nothing where there are none, or
/// where experts are chosen, of which nothing is predicted here.
std::optional<DType> packing_form(const SweepLayout& target);
/// The plain format of a form.
DType plain_form(DType form);

/// The target with these weights in another form.
struct OtherForm {
  Checkpoint target;  // laid out, never read; its rows are as long as trained weights make them
  HardwareProfile profile;
};
/// The form of `to` where `from` is measured: each pass over a unit takes the difference of their
/// products of one row longer, or shorter.
OtherForm other_form(const SweepLayout& target, const HardwareProfile& profile,
                     const CodecCost& from, const CodecCost& to);

/// "BF16", "FP8 by blocks", or the codec.
std::string form_name(DType form);

/// Seconds per token by each form of a model's weights; nothing where no plan fits.
struct FormSeconds {
  CodecCost cost;
  std::optional<double> seconds;
};
/// The form that pays: the fastest where it is predicted to be faster than `now`, which must fit,
/// by more than predictions may be off, else `now`.
const FormSeconds& best_form(const std::vector<FormSeconds>& forms, DType now);
/// Says in a line what bits and speed each form has here, and which pays.
std::string packing_words(const std::vector<FormSeconds>& forms, DType now);

}  // namespace canopy::cli
