// Requests behind which Crimp has work: what a request's completion leaves to do, found by the request when MPI says
// that it is complete.
//
// The program holds MPI's own request, so that handles, Fortran's too, and MPI's progress are MPI's. Where no such
// request is outstanding a completing call costs one load.
#pragma once
#include <mpi.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>

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

  Entry take(MPI_Request) noexcept;  // out of the table; to be given back, complete or not
  void put(Entry) noexcept;
  void end(Entry) noexcept;  // nobody will ask for it again

 private:
  static constinit std::atomic<int> outstanding_;
  std::mutex mutex_;
  Table table_;
  std::size_t taken_ = 0;  // for which the table has room
};

class Pending {
 public:
  virtual ~Pending() = default;
  // The request is complete: the result goes to the program's buffer. `rc`: what MPI says of it. Returns the code to
  // hand back; what is Crimp's failure has been raised then.
  virtual int finish(int rc) = 0;
  // Of a persistent request, before MPI starts it. Returns the code to hand back where that is not MPI_SUCCESS.
  virtual int start() { return MPI_SUCCESS; }
  virtual bool persistent() const { return false; }
  // Before MPI frees the request. Returns the code to hand back, raised, where it has to stay.
  virtual int release() { return MPI_SUCCESS; }
  // A generalized request, which Crimp completes itself.
  virtual bool generalized() const { return false; }

  // Once, though MPI_Request_get_status says again and again that it is complete; of a persistent request also before
  // its start.
  bool finished = false;

  // While a call has taken it: its entry, the place of its request in that call, and what the call took behind it.
  // Here, because a call that completes requests needs no memory of its own then.
  Requests::Entry entry;
  int index = 0;
  Pending* next = nullptr;
};

}  // namespace crimp
