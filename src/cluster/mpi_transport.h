#pragma once
#include <memory>

#include "src/cluster/transport.h"

namespace canopy {

/// Says of the environment if this process is one of several that a launcher of MPI has started.
bool is_one_of_several();

/// Joins the processes that mpirun has started. Once in a process. Throws Error where the program
/// was built without MPI, or MPI does not start.
std::unique_ptr<Transport> join_by_mpi();

}  // namespace canopy
