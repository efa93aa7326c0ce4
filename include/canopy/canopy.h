#pragma once
// Canopy as a library: exact inference of language models that are larger than memory. A program
// includes this header; docs/library.md has one.
#include "api.h"

namespace canopy {
using namespace api;  // canopy::Model and so on. Canopy's own sources, where some of these words
                      // have other meanings, include api.h instead
}  // namespace canopy
