#pragma once
#include "error.h"

namespace canopy {

/// A budget is too small. The message has the ledger and the smallest budget that would do.
class __attribute__((visibility("default"))) BudgetError : public Error {
 public:
  using Error::Error;
};

}  // namespace canopy
