#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "planner/tree_shape.h"
#include "src/base/types.h"

namespace canopy {

/// An acceptance vector as it was measured, and what of: docs/formats.md, "Acceptance files".
struct MeasuredAcceptance {
  std::string target, draft;  // fingerprints: what the measurement is kept under
  std::string target_name, draft_name, prompts, date, version;  // for people
  Sampling sampling;                                            // of target and draft
  std::string drawing;                                          // of the children
  Acceptance acceptance;               // as measured: best_tree makes the tail monotone
  std::vector<double> standard_error;  // per entry
  std::int64_t positions = 0;
  int examples = 0, texts = 0;
};

/// JSON, versioned; the same numbers come back.
std::string to_json(const MeasuredAcceptance& measured);
/// Throws Error saying what is wrong: not JSON, another version, a field missing or of another
/// type, numbers that are no probabilities.
MeasuredAcceptance acceptance_from_json(std::string_view text);

/// The file name under which a pair's measurement is found again.
std::string acceptance_file_name(const std::string& target, const std::string& draft,
                                 const Sampling& sampling);

}  // namespace canopy
