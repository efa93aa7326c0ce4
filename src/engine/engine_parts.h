#pragma once
#include <memory>

#include "src/engine/plan/plan.h"
#include "src/engine/target_model.h"
#include "src/speculation/drafter.h"

namespace canopy {

struct Runtime;

/// Parts of an engine that a measurement reaches, and no other room does (tests/check_layers.py).
/// Lives as long as the engine. One thread; while no session has texts.
class EngineParts {
 public:
  explicit EngineParts(Runtime& runtime) : runtime_(runtime) {}

  const ModelSweeps& sweeps() const;
  TargetModel& target();
  Verifier& verifier();
  Drafter* drafter();  // none without speculation
  /// The engine drafts with this from now on, or not at all.
  void set_drafter(std::unique_ptr<Drafter> drafter);
  /// A draft model of its own, where there is one.
  Transformer* draft();

 private:
  Runtime& runtime_;
};

}  // namespace canopy
