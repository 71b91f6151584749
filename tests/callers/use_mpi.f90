! Sums a vector by Fortran's mpi.
program sum_mpi
  use mpi
  implicit none
  integer, parameter :: elements = 100000
  real :: values(elements), exact
  integer :: rank, ranks, ierror
  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  values = real(rank + 1) / 3
  exact = real(ranks * (ranks + 1)) / 6
  call MPI_Allreduce(MPI_IN_PLACE, values, elements, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierror)
  call MPI_Finalize(ierror)
  if (any(abs(values - exact) > 0.01)) stop 1
end program sum_mpi
