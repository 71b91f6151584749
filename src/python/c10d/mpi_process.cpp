#include "mpi_process.hpp"

#include <arpa/inet.h>
#include <c10/util/Exception.h>
#include <crimp/crimp.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <atomic>

namespace crimp_torch {
namespace {

bool begun_here = false, serialized = false;
std::mutex one_at_a_time;
std::atomic<bool> ended{false};  // set ahead of the lock, which threads that poll might never leave to its writer
std::shared_mutex& the_end = *new std::shared_mutex;  // threads may ask for turns until the process is gone

bool flag_of(int (*question)(int*)) {
  int answer = 0;
  return question(&answer) == MPI_SUCCESS && answer != 0;
}

}  // namespace

MpiPlace start_mpi() {
  TORCH_CHECK(!flag_of(MPI_Finalized), "crimp: MPI has ended in this process and cannot begin again");
  int level = MPI_THREAD_SINGLE;
  if (!flag_of(MPI_Initialized)) {
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
    begun_here = true;
  }
  check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  TORCH_CHECK(level >= MPI_THREAD_SERIALIZED,
              "crimp: MPI was initialized for calls of one thread only; initialize it with MPI_THREAD_SERIALIZED or "
              "MPI_THREAD_MULTIPLE, or let init_process_group(\"crimp\") do it");
  serialized = level == MPI_THREAD_SERIALIZED;
  // What calls ask for later is made here, where none of our threads is in MPI.
  MPI_Datatype type;
  MPI_Op op;
  for (const crimp_dtype dtype : {CRIMP_FLOAT32, CRIMP_FLOAT64, CRIMP_FLOAT16, CRIMP_BFLOAT16})
    check_mpi(crimp_datatype(dtype, &type, &op), "crimp_datatype");

  MpiPlace place{};
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &place.rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &place.size), "MPI_Comm_size");
  return place;
}

bool one_host() {
  const auto lock = mpi_turn();
  MPI_Comm node = MPI_COMM_NULL;
  int here = 0, all = 0;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  check_mpi(MPI_Comm_size(node, &here), "MPI_Comm_size");
  check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &all), "MPI_Comm_size");
  return here == all;
}

std::string share(const std::string& text) {
  const auto lock = mpi_turn();
  std::string shared = text;
  int length = static_cast<int>(text.size());
  check_mpi(MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD), "MPI_Bcast");
  shared.resize(static_cast<std::size_t>(length));
  check_mpi(MPI_Bcast(shared.data(), length, MPI_CHAR, 0, MPI_COMM_WORLD), "MPI_Bcast");
  return shared;
}

bool mpi_runs() { return !ended && flag_of(MPI_Initialized) && !flag_of(MPI_Finalized); }

void check_runs() { TORCH_CHECK(mpi_runs(), "crimp: MPI has ended"); }

MpiTurn mpi_turn() {
  check_runs();
  MpiTurn turn{std::shared_lock(the_end), {}};
  check_runs();
  if (serialized) turn.alone = std::unique_lock(one_at_a_time);
  return turn;
}

std::optional<MpiTurn> try_mpi_turn() {
  if (!mpi_runs()) return std::nullopt;
  MpiTurn turn{std::shared_lock(the_end, std::try_to_lock), {}};
  if (!turn.before_the_end || !mpi_runs()) return std::nullopt;
  if (serialized) turn.alone = std::unique_lock(one_at_a_time, std::try_to_lock);
  if (serialized && !turn.alone) return std::nullopt;
  return turn;
}

std::unique_lock<std::shared_mutex> last_mpi_turn() {
  ended = true;
  return std::unique_lock(the_end);
}

void finalize_mpi() {
  if (begun_here && !flag_of(MPI_Finalized)) MPI_Finalize();
}

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  check_runs();  // else the question for the text would end the process
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  TORCH_CHECK(false, "crimp: ", call, ": ", std::string(text, static_cast<std::size_t>(length)));
}

std::vector<std::string> addresses() {
  std::vector<std::string> out;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return out;
  std::size_t others = 0;
  for (const ifaddrs* one = all; one; one = one->ifa_next) {
    if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET || !(one->ifa_flags & IFF_UP)) continue;
    char text[INET_ADDRSTRLEN] = "";
    const auto* address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    inet_ntop(AF_INET, &address->sin_addr, text, sizeof text);
    out.emplace_back(text);
    if (!(one->ifa_flags & IFF_LOOPBACK)) std::swap(out[others++], out.back());
  }
  freeifaddrs(all);
  return out;
}

}  // namespace crimp_torch
