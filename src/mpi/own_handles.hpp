// Types and operations that Crimp makes of MPI for itself: at first use, and freed by MPI_Finalize when it has called
// back what the program asked for, so that MPI finds nothing left. What is needed behind that is made anew, and stays.
#pragma once
#include <mpi.h>

#include <atomic>
#include <mutex>

namespace crimp {

class OwnHandle {
 public:
  OwnHandle(const OwnHandle&) = delete;
  OwnHandle& operator=(const OwnHandle&) = delete;
  bool made() const { return made_.load(std::memory_order_acquire); }

  // In the first callback that MPI_COMM_SELF is given, which MPI calls last (MPI-3.1, 8.7.1). Local. Throws
  // Error{transport_failed}.
  static void free_in_finalize();

 protected:
  constexpr OwnHandle() = default;
  ~OwnHandle() = default;
  void insist();  // that it is made; throws Error{transport_failed}

 private:
  virtual void make() = 0;
  virtual void free() noexcept = 0;
  static int free_all(MPI_Comm, int, void*, void*) noexcept;

  static constinit std::mutex mutex_;
  static constinit OwnHandle* all_;  // that are made
  OwnHandle* next_ = nullptr;
  std::atomic<bool> made_{false};
};

// So many elements of a type behind one another, committed.
class OwnType final : public OwnHandle {
 public:
  OwnType(int count, MPI_Datatype of) : count_(count), of_(of) {}
  MPI_Datatype get() {
    insist();
    return type_;
  }

 private:
  void make() override;
  void free() noexcept override;
  const int count_;
  const MPI_Datatype of_;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

// A commutative one.
class OwnOp final : public OwnHandle {
 public:
  explicit OwnOp(MPI_User_function* function) : function_(function) {}
  MPI_Op get() {
    insist();
    return op_;
  }

 private:
  void make() override;
  void free() noexcept override;
  MPI_User_function* const function_;
  MPI_Op op_ = MPI_OP_NULL;
};

}  // namespace crimp
