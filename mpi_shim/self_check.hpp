// Says whether the reductions that Crimp compresses really lead to it. Linked, not preloaded, Crimp is bypassed where
// libmpi came into the global scope first, as after "from mpi4py import MPI"; then nothing of it is ever called, and
// every result is right but uncompressed.
//
// Looked at when the library is loaded (if MPI was initialized before, as by importing mpi4py), when Crimp starts, and
// when the process ends (for modules that were loaded in between, and where MPI was initialized past Crimp later). A
// tool that was there first may hand calls on in ways that cannot be seen, so that only at the end it is said whether
// any came at all. One warning of a kind per process, from rank 0 or where there is no rank; `crimp check` gets all
// answers through the file CRIMP_CHECK. Nothing is looked at before MPI is initialized otherwise, but for who calls
// MPI_Init.
#pragma once

namespace crimp {

// MPI_Init is called: an error where the module that calls it needs an MPI of the other family (other_mpi.hpp).
void check_caller() noexcept;

// Crimp has started: one line on rank 0 says which modules' calls lead here, and a warning which do not though they
// should.
void check_at_start() noexcept;

// A sum has come, and Crimp has not started because there is no MPI: where it was never initialized, a warning, once.
void check_before_init() noexcept;

}  // namespace crimp
