// Requests behind which Crimp has work: what a request's completion leaves to do, found by the request when MPI says
// that it is complete.
//
// The program holds MPI's own request, so that handles, Fortran's too, and MPI's progress are MPI's. Where no such
// request is outstanding a completing call costs one load.
#pragma once
#include <mpi.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/stall.hpp"
#include "guard.hpp"

namespace crimp {

class Pending;

// Thread-safe: of one request one thread at a time asks, as MPI demands.
class Requests {
 public:
  using Table = std::unordered_map<MPI_Request, std::unique_ptr<Pending>>;
  using Entry = Table::node_type;  // empty: none

  static bool any() { return outstanding_.load(std::memory_order_relaxed) != 0; }
  static Requests& get();

  // Room for one more, had before its sum begins: then the sum is found by its request, whatever memory is left.
  class Room {
   public:
    Room();  // throws std::bad_alloc
    ~Room();
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
    void fill(MPI_Request, std::unique_ptr<Pending>) noexcept;  // once

   private:
    Entry entry_;
  };

  // Out of the table for a call, whose frame is given; to be given back, complete or not. Null: none.
  Pending* take(MPI_Request, const void* frame) noexcept;
  void put(Pending&) noexcept;
  void started(Pending&, MPI_Request) noexcept;  // by MPI, which may have given it another handle
  void end(Pending&) noexcept;  // nobody will ask for it again: what nobody has been told of it is said
  // Gives back what calls of this thread had taken that an error handler left by longjmp. What another thread's call
  // had is found when that thread completes some request again: nobody else can tell that the call is no more.
  void reclaim() noexcept;
  // A request is complete, and stays the program's: its result goes there. Returns the code to hand back, unless there
  // is a failure to be raised, which stays the request's. Of several threads all return when the result is there.
  int look(MPI_Request, int rc, std::optional<Failure>&);
  // Of one that this thread has taken and MPI has completed: its result goes to the program, once. Returns the code to
  // hand back.
  int finish(Pending&, int rc);
  // The program frees a communicator.
  void freed(MPI_Comm) noexcept;

 private:
  int finish(Pending&, int rc, std::unique_lock<std::mutex>&);
  Pending* find_taken(MPI_Request) const;  // whoever has taken it
  Table::iterator find(MPI_Request, std::unique_lock<std::mutex>&);
  void unlink(Pending&) noexcept;

  static constinit std::atomic<int> outstanding_;
  std::mutex mutex_;
  std::condition_variable looked_;
  Table table_;
  std::size_t taken_ = 0;        // for which the table has room
  Pending* in_calls_ = nullptr;  // taken
};

class Pending {
 public:
  virtual ~Pending() = default;
  // Each of these returns the code to hand back, or leaves a failure that is to be raised in its place: then, or when
  // the request is completed.
  // The request is complete: the result goes to the program's buffer. `rc`: what MPI says of it.
  virtual int finish(int rc) = 0;
  // Of a persistent request, before MPI starts it.
  virtual int start() { return MPI_SUCCESS; }
  virtual void started() noexcept {}  // by MPI
  // Before MPI frees the request. It has to stay where that is not MPI_SUCCESS.
  virtual int release() { return MPI_SUCCESS; }

  virtual bool persistent() const { return false; }
  // Failures are raised there: MPI_COMM_NULL once the program has freed it, which a request outlives.
  virtual MPI_Comm comm() const = 0;
  // Crimp waits for it in a function of the program's: whether it is this one's to say that (core/stall.hpp).
  virtual bool look(StallWatch&, const char* /*function*/) const noexcept { return false; }
  // Said of every communicator that is freed, to those that do not see it themselves.
  virtual void freed(MPI_Comm) noexcept {}
  std::optional<Failure> take_failure() {
    std::optional<Failure> taken = std::exchange(failure, {});
    if (taken) taken->comm = comm();
    return taken;
  }

  // Once, though MPI_Request_get_status says again and again that it is complete; of a persistent request also before
  // its start.
  std::atomic<bool> finished{false};
  std::optional<Failure> failure;
  bool looking = false;  // finish() runs

  // While a call has taken it: its entry, the place of its request in that call, and what the call took behind it.
  // Here, because a call that completes requests needs no memory of its own then, and because a call that is left by
  // longjmp leaves nothing else.
  Requests::Entry entry;
  int index = 0;
  Pending* next = nullptr;
  bool completed = false;  // by this call, with this code
  int code = MPI_SUCCESS;
  // MPI has no other request in its hands, so that an error is this one's, which is no more then.
  bool alone = false;
  // Of all that is taken, and by whom.
  Pending *before = nullptr, *behind = nullptr;
  const void *thread = nullptr, *frame = nullptr;
};

}  // namespace crimp
