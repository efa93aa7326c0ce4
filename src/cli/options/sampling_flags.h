#pragma once
#include <cstdint>
#include <optional>

#include "src/base/types.h"
#include "src/cli/command.h"

namespace canopy::cli {

/// The names of -n.
inline constexpr const char* kLengthFlag = "n-predict,max-tokens,max-new-tokens,n";

/// --temp, --top-k, --top-p, --seed.
boost::program_options::options_description sampling_flags();
/// Throws UsageError for numbers that are none of a sampling.
Sampling sampling_of(const boost::program_options::variables_map& values);
/// Nothing where the user leaves it open.
std::optional<std::uint64_t> seed_of(const boost::program_options::variables_map& values);

}  // namespace canopy::cli
