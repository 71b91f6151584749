// Whether all ranks of a communicator say the same, found out before anybody acts on it: builds and settings, and what
// programs give at run time.
#pragma once
#include <mpi.h>

#include <functional>
#include <span>
#include <string>

#include "core/settings.hpp"

namespace crimp {

// Collective; true where all ranks' settings_text() are equal byte for byte and all are legal or none is. Otherwise
// false on all ranks, and rank 0 says what differs and where. `where` is what a rank says that waits too long for the
// others (core/stall.hpp). `any`, where given: whether it is true of this rank, and then whether it is of some rank;
// where the settings agree it is equal on all ranks. Throws Error{transport_failed}.
bool settings_agree(MPI_Comm, int rank, int size, const Settings&, bool legal, const std::string& where,
                    bool* any = nullptr);

// In MPI_Init. Equal on all ranks, but for `difference`.
struct Agreement {
  bool same = false;
  // False where they differ and the ranks' builds of Crimp are not all the same: nothing may be exchanged any more,
  // since another build would exchange something else.
  bool one_build = true;
  int taken = 0;           // where they agree: how many ranks have something from rank 0
  std::string difference;  // on rank 0, where they differ: what and where, as a line; empty: no memory for it
};
// Likewise; before the comparison a rank other than 0 makes its settings anew by read(rank 0's), which says what it was
// not told itself (options_in(), src/core/settings_text.hpp). It has them where all agree, else those that it was told.
Agreement settings_agree_from(int rank, int size, Settings&, const std::string& where,
                              const std::function<Settings(std::span<const SettingText>)>& read);

// Collective. Throws Error{call_differs} on all ranks alike where the texts are not equal: it names `what`, and two
// ranks' texts.
void require_equal(MPI_Comm, int rank, int size, const std::string& what, const std::string& mine);

}  // namespace crimp
