! A program with `use mpi` and one with `use mpi_f08` (BINDING) are caught, in place too: their calls appear in the report.
program caught
  use BINDING
  implicit none
  integer, parameter :: n = 20000
  integer :: rank, ranks, ierr
  real :: x(n), y(n)
  double precision :: d(n), exact
  logical :: good

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  exact = ranks * (ranks + 1) / 6d0
  x = (rank + 1) / 3.0
  d = (rank + 1) / 3d0
  call MPI_Allreduce(x, y, n, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierr)
  call MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierr)
  call MPI_Allreduce(MPI_IN_PLACE, d, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  good = ierr == MPI_SUCCESS .and. all(abs(x - exact) < 2d-3 * exact) .and. all(abs(d - exact) < 2d-3 * exact) .and. all(x == y)
  write (*, '(a,i0,a)') 'expect ', rank, ' calls=3'
  flush (6)
  call MPI_Finalize(ierr)
  if (.not. good) stop 1
end program caught
