// exit() with sums under way that threads of ours carry. The program's buffers have to stay until these are complete,
// but the destructors of their owners run then, and what the threads touched behind them would end the process by a
// signal in place of its exit code. So from there on the threads stand aside.
//
// A program may go on in MPI from a handler of its own, and other ranks count on its sums: what completes, starts or
// ends some calls go_on(), and by itself this lasts two seconds at most. Other threads of the program's, which may be
// asking for requests of their own all the time, end nothing.
#pragma once

namespace crimp {

// When a sum begins, on the thread that calls for it: exit() comes to the last one's call of this before it comes to
// the destructors of what was made before that. Where there is no memory to note it nothing stands aside.
void expect_exit() noexcept;
// Around what a thread of ours does with buffers of the program's.
class AtWork {
 public:
  AtWork() noexcept;
  ~AtWork();
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;
};
// Where such a thread touches none of them; returns when it may again. Other threads return at once.
void stand_aside() noexcept;
void go_on() noexcept;

}  // namespace crimp
