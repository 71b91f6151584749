// Whether all ranks of a communicator run the same build of Crimp with the same settings.
#pragma once
#include <mpi.h>

#include <string>

#include "crimp/config.hpp"

namespace crimp {

// Collective; true where all ranks' settings_text() are equal byte for byte and all are legal or none is. Otherwise false on all ranks, and rank 0
// says what differs and where. `where` is what a rank says that waits too long for the others (core/stall.hpp). Throws Error{transport_failed}.
bool settings_agree(MPI_Comm, int rank, int size, const Settings&, bool legal, const std::string& where);

}  // namespace crimp
