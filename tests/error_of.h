#pragma once
#include <string>

#include "src/base/error.h"

namespace canopy {

/// The message of the Error that `body` throws; "" if it throws none. Other exceptions pass.
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace canopy
