#pragma once
// Room src/base: the ground of every other room: errors, JSON, files and UTF-8, random numbers,
// names of tensors' roles, and formats of weights (src/base/formats) with their exact meaning.
// In: bytes. Out: values, checked.
// Must not know: models, devices, threads of others, the command line.
#include <string_view>
#include <utility>

#include "include/canopy/error.h"

namespace canopy {

/// Throws Error(cause) unless ok. For cheap causes only; build rich ones inside an if.
inline void require(bool ok, const char* cause, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) {
  if (!ok) throw Error(cause, file, line);
}

/// Runs body; an Error passing through gains a line of context.
template <class Body>
decltype(auto) in_context(std::string_view context, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const Error& e) {
    throw e.with(context);
  }
}

}  // namespace canopy
