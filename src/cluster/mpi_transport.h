#pragma once
#include <functional>
#include <memory>
#include <string>

#include "src/base/types.h"
#include "src/cluster/transport.h"

namespace canopy {

/// A process as its launcher has started it, by the environment.
struct Launched {
  int rank = 0, ranks = 1;
  int on_this_machine = 1;  // of the ranks
  bool is_bound = false;    // to some of the machine's CPUs
};
/// Reads what a launcher of MPI has put into the environment; one rank without it.
Launched launched_by_mpi();

/// Reports what could not be done in time; the process ends when it returns.
using OnHang = std::function<void(const std::string& what)>;
/// Joins the processes that mpirun has started. Once in a process. Where joining, or ending in
/// order, takes longer than the timeout, it calls `on_hang` by a thread of its own, and the process
/// ends with 1. Throws Error where the program was built without MPI, MPI does not start, or the
/// launcher is of another MPI.
std::unique_ptr<Transport> join_by_mpi(Seconds timeout = Seconds(60), OnHang on_hang = {});

}  // namespace canopy
