// Types and operations that Crimp makes of MPI for itself: at first use, and freed by MPI_Finalize when it has called
// back what the program asked for, so that MPI finds nothing left. What is needed behind that is made anew, and stays.
//
// No lock is held while MPI makes or frees one: its error handler may leave by longjmp.
#pragma once
#include <mpi.h>

#include <atomic>
#include <mutex>

namespace crimp {

class OwnHandle {
 public:
  OwnHandle(const OwnHandle&) = delete;
  OwnHandle& operator=(const OwnHandle&) = delete;

  // In the first callback that MPI_COMM_SELF is given, which MPI calls last (MPI-3.1, 8.7.1). Local. Throws
  // Error{transport_failed}.
  static void free_in_finalize();

 protected:
  constexpr OwnHandle() = default;
  ~OwnHandle() = default;
  void made();  // it has a handle that is to be freed

 private:
  virtual void free() = 0;
  static int free_all(MPI_Comm, int, void*, void*);

  static constinit std::mutex mutex_;
  static constinit OwnHandle* all_;  // that are made
  OwnHandle* next_ = nullptr;
};

// So many elements of a type behind one another, committed.
class OwnType final : public OwnHandle {
 public:
  OwnType(int count, MPI_Datatype of) : count_(count), of_(of) {}
  MPI_Datatype get();                                                           // throws Error{transport_failed}
  MPI_Datatype known() const { return type_.load(std::memory_order_acquire); }  // MPI_DATATYPE_NULL: not made

 private:
  void free() override;
  const int count_;
  const MPI_Datatype of_;
  std::atomic<MPI_Datatype> type_{MPI_DATATYPE_NULL};
};

// A commutative one.
class OwnOp final : public OwnHandle {
 public:
  explicit OwnOp(MPI_User_function* function) : function_(function) {}
  MPI_Op get();                                                         // throws Error{transport_failed}
  MPI_Op known() const { return op_.load(std::memory_order_acquire); }  // MPI_OP_NULL: not made

 private:
  void free() override;
  MPI_User_function* const function_;
  std::atomic<MPI_Op> op_{MPI_OP_NULL};
};

}  // namespace crimp
