C     A Fortran 77 program (mpif.h) is caught, in place too: its calls
C     appear in the report.
      PROGRAM CAUGHT
      IMPLICIT NONE
      INCLUDE 'mpif.h'
      INTEGER N, I, RANK, RANKS, IERR
      PARAMETER (N = 20000)
      REAL X(N), Y(N)
      DOUBLE PRECISION D(N), SUM
      LOGICAL GOOD
      CALL MPI_INIT(IERR)
      CALL MPI_COMM_RANK(MPI_COMM_WORLD, RANK, IERR)
      CALL MPI_COMM_SIZE(MPI_COMM_WORLD, RANKS, IERR)
      SUM = RANKS * (RANKS + 1) / 6D0
      DO 10 I = 1, N
        X(I) = (RANK + 1) / 3.0
        D(I) = (RANK + 1) / 3D0
   10 CONTINUE
      CALL MPI_ALLREDUCE(X, Y, N, MPI_REAL, MPI_SUM, MPI_COMM_WORLD,
     &                   IERR)
      CALL MPI_ALLREDUCE(MPI_IN_PLACE, X, N, MPI_REAL, MPI_SUM,
     &                   MPI_COMM_WORLD, IERR)
      CALL MPI_ALLREDUCE(MPI_IN_PLACE, D, N, MPI_DOUBLE_PRECISION,
     &                   MPI_SUM, MPI_COMM_WORLD, IERR)
      GOOD = IERR .EQ. MPI_SUCCESS
      DO 20 I = 1, N
        GOOD = GOOD .AND. ABS(X(I) - SUM) .LT. 2D-3 * SUM
        GOOD = GOOD .AND. ABS(D(I) - SUM) .LT. 2D-3 * SUM
        GOOD = GOOD .AND. X(I) .EQ. Y(I)
   20 CONTINUE
      WRITE (*, '(A,I0,A)') 'expect ', RANK, ' calls=3'
      CALL FLUSH(6)
      CALL MPI_FINALIZE(IERR)
      IF (.NOT. GOOD) STOP 1
      END
