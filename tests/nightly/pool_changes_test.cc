// Ten thousand units go and come back under random texts, which stay as they are alone.
#include "tests/engine/memory_pool_kit.h"

namespace canopy {
namespace {

class PoolChanges : public MemoryPoolTest {};

TEST_F(PoolChanges, LeaveTextsAsTheyAre) { run_texts(false, 10000); }
TEST_F(PoolChanges, LeaveTextsOfMixturesAsTheyAre) { run_texts(true, 10000); }

}  // namespace
}  // namespace canopy
