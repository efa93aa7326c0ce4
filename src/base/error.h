#pragma once
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
