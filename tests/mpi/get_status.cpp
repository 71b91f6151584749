// MPI 4.1's MPI_Request_get_status_any, _all and _some: what they say is complete is in the program's buffers, and the
// request stays the program's. Looked up by name, because headers here are older. Exit code 77: there are none.
#include <dlfcn.h>

#include "check.hpp"

using check::rank, check::size;

namespace {

using Any = int (*)(int, const MPI_Request*, int*, int*, MPI_Status*);
using All = int (*)(int, const MPI_Request*, int*, MPI_Status*);

constexpr int kCount = 20000;
std::vector<float> in[2], sum[2];
MPI_Request requests[4];  // null, a sum, a barrier, a sum
MPI_Status statuses[4];

void start() {
  requests[0] = MPI_REQUEST_NULL;
  for (int s = 0; s < 2; ++s) {
    in[s].assign(kCount, static_cast<float>(s + 1)), sum[s].assign(kCount, -7);
    MPI_Iallreduce(in[s].data(), sum[s].data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &requests[1 + 2 * s]);
    if (s == 0) MPI_Ibarrier(MPI_COMM_WORLD, &requests[2]);
  }
}

void verify(int index, const char* how) {
  CHECK((index >= 1 && index < 4), "%s says %d", how, index);
  if (index == 2) return;
  auto& values = sum[index / 2];
  const auto expected = static_cast<float>(size * (index / 2 + 1));
  CHECK((values.front() == expected && values.back() == expected), "%s: %g", how, static_cast<double>(values.back()));
  values.front() = -1;  // the program's again
}

// Complete now: nothing is written a second time.
void end(int index) {
  CHECK(requests[index] != MPI_REQUEST_NULL);
  MPI_Wait(&requests[index], MPI_STATUS_IGNORE);
  CHECK((index == 2 || sum[index / 2].front() == -1));
}

}  // namespace

int main() {
  const auto any = reinterpret_cast<Any>(::dlsym(RTLD_DEFAULT, "MPI_Request_get_status_any"));
  const auto all = reinterpret_cast<All>(::dlsym(RTLD_DEFAULT, "MPI_Request_get_status_all"));
  const auto some = reinterpret_cast<Any>(::dlsym(RTLD_DEFAULT, "MPI_Request_get_status_some"));
  check::begin();
  if (!any || !all || !some) {
    MPI_Finalize();
    return check::kSkipped;
  }
  int flag = 0, index = 0;
  start();
  while (!flag) CHECK(all(4, requests, &flag, statuses) == MPI_SUCCESS);
  for (const int i : {1, 2, 3}) verify(i, "all"), end(i);

  start();
  for (int left = 3; left > 0;) {
    CHECK(any(4, requests, &index, &flag, &statuses[0]) == MPI_SUCCESS);
    if (flag) verify(index, "any"), end(index), --left;
  }
  CHECK((any(4, requests, &index, &flag, &statuses[0]) == MPI_SUCCESS && flag && index == MPI_UNDEFINED));

  start();
  int done = 0, indices[4];
  for (int left = 3; left > 0; left -= done) {
    CHECK(some(4, requests, &done, indices, statuses) == MPI_SUCCESS);
    CHECK((done >= 0 && done <= left), "some says %d", done);
    for (int i = 0; i < done; ++i) verify(indices[i], "some"), end(indices[i]);
  }
  CHECK((some(4, requests, &done, indices, statuses) == MPI_SUCCESS && done == MPI_UNDEFINED));
  check::expected["calls"] = size > 1 ? 6 : 0;
  return check::finish();
}
