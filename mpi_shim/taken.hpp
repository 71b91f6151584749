// The work behind the requests of one call that completes or starts them.
//
// A request's work is taken out of the table before MPI is asked, because behind MPI's completion another thread may
// get the same handle for a new request; what is not complete is put back. An error handler of the program's may leave
// any call of MPI's by longjmp, behind which no destructor runs: so no call is made while a lock is held or something
// is known to the call's frame alone, and what a call leaves taken the thread's next one gives back.
//
// Where that call had several requests MPI may have completed some of ours before it raised another's error, and their
// handles be new requests'. So what is complete of ours has its result before a call that completes several.
#pragma once
#include <mpi.h>

#include "next.hpp"
#include "requests.hpp"

namespace crimp {

class Taken {
 public:
  Taken(const MPI_Request* requests, int count);
  // What was not finished is as it was. Where an error handler has thrown for another one of the requests, MPI may have
  // completed this one before: its handle is some other request's next.
  ~Taken();
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  // MPI's call for request i alone, which MPI does not refuse: its error means that the request is no more.
  template <class Ask>
  int alone(int i, Ask ask) {
    Pending* const p = find(i);
    if (p) p->alone = true;
    const int rc = ask();
    if (p) p->alone = false;
    return rc;
  }
  // Request i is complete, or there is an error and it goes on.
  int finish(int i, int rc);
  // All of `count` are, or of some MPI says otherwise.
  int finish_all(int rc, int count, MPI_Status* statuses);
  // `count` are, whose indices are given.
  int finish_some(int rc, int count, const int* indices, MPI_Status* statuses);
  // What is complete has its result then. MPI's error of one, which Open MPI says only where it completes it, comes
  // with the call itself, and then what was made of it does not count. Whether all is complete. Crimp's own question,
  // of which a tool behind us hears nothing.
  bool look();
  // The same call, `function`, waits on: where the first sum that is not complete takes too long a line names it.
  void tell(StallWatch&, const char* function) noexcept;
  // Whether others stand beside ours, which MPI's own call is to move on: MPI-IO's move only while such a call has
  // them.
  bool has_others(int count) const;
  // MPICH 4.0 ends the job where persistent sums are tested that are not complete.
  bool has_persistent() const;
  bool has_finished() const;  // one that look() has found complete
  int release();
  // MPI has freed the request. What it still goes on with keeps its buffers: nobody will say when it ends.
  void freed();
  bool none() const { return !first_; }
  bool has(MPI_Request) const;
  // MPI's call that starts request i. Until then it is inactive, of which MPI says that it is complete. What is under
  // way, or cannot be started, is left alone: MPI refuses to start that.
  template <class Ask>
  int start(int i, Ask ask) {
    Pending* const p = find(i);
    if (!p || !p->persistent() || (!p->finished && goes_on(*p))) return ask();
    int rc = prepare(*p);
    if (rc == MPI_SUCCESS && ((rc = ask()) == MPI_SUCCESS || goes_on(*p))) Requests::get().started(*p, requests_[i]);
    return rc;
  }

 private:
  // use() may end the one it is given.
  template <class Use>
  void each(Use use) {
    for (Pending *p = first_, *behind; p; p = behind) {
      behind = p->next;
      use(*p);
    }
  }
  Pending* find(int i) const {
    Pending* p = first_;
    while (p && p->index != i) p = p->next;
    return p;
  }
  bool goes_on(const Pending&) const;
  static int prepare(Pending&);  // before MPI starts it
  void unlink(Pending&);
  // Of one that is settled: the code to hand back, raised where the failure is ours.
  int answer(Pending&);

  const MPI_Request* requests_;
  Pending* first_ = nullptr;
  const Pending* told_ = nullptr;  // the first that was not complete, when that was last asked
};

}  // namespace crimp
