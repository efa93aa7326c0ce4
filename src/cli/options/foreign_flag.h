#pragma once
#include "src/cli/options/flags.h"

namespace canopy::cli {

/// A flag of llama.cpp's programs that sets nothing here, so that their command lines are taken.
struct ForeignFlag {
  const char* names;  // as Boost has them: "batch-size,b"
  const char* value;  // what help calls it; null: it takes none
  const char* why;    // it sets nothing, for help and for the note
};
/// Adds it: where it is given, a note on stderr says why it changes nothing.
void add_foreign(Flags& flags, const ForeignFlag& flag);

// A flag of several commands.
inline constexpr ForeignFlag kJinja{"jinja", nullptr, "chat templates are always read as Jinja"};
inline constexpr ForeignFlag kNoWarmup{"no-warmup", nullptr,
                                       "there is no warm-up; what plans need is measured once"};
/// Flags of commands that run a model.
void add_foreign_model_flags(Flags& flags);
/// Flags of commands that take a prompt as it is.
void add_foreign_prompt_flags(Flags& flags);

}  // namespace canopy::cli
