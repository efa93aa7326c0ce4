// Ten thousand units, or experts, go and come back under random texts, which stay as they are
// alone: half of them without a draft, half of them with one.
#include "tests/engine/memory_pool_kit.h"

namespace canopy {
namespace {

class PoolChanges : public MemoryPoolTest {};

TEST_F(PoolChanges, LeaveTextsAsTheyAre) { run_texts(false, 5000); }
TEST_F(PoolChanges, LeaveTextsOfMixturesAsTheyAre) { run_texts(true, 5000); }

}  // namespace
}  // namespace canopy
