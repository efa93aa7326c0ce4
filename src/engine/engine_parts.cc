#include "src/engine/engine_parts.h"

#include <utility>

#include "src/engine/runtime.h"

namespace canopy {

const ModelSweeps& EngineParts::sweeps() const { return runtime_.sweeps; }
TargetModel& EngineParts::target() { return *runtime_.target; }
Verifier& EngineParts::verifier() { return *runtime_.verifier; }
Drafter* EngineParts::drafter() { return runtime_.drafter.get(); }
void EngineParts::set_drafter(std::unique_ptr<Drafter> drafter) {
  runtime_.drafter = std::move(drafter);
  runtime_.share_memory();
}
Transformer* EngineParts::draft() { return runtime_.draft.get(); }

}  // namespace canopy
