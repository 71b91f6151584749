// What the MPI tests share: checks whose failures any rank's exit status shows, the MPI library's own MPI_Allreduce,
// test values.
//
// A program ends with `return check::finish();`. Before that each rank prints what the report (CRIMP_REPORT) must say
// about it, and run.py compares.
#pragma once
#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#define CHECK(condition, ...)                                                                \
  do {                                                                                       \
    if (!(condition)) check::fail(__FILE__, __LINE__, #condition, check::text(__VA_ARGS__)); \
  } while (0)

namespace check {

inline int rank = 0, size = 1;
inline std::atomic<int> failures{0};
inline std::map<std::string, long>
    expected;  // report entries of this rank: "calls", "passed_through.small", ...; "calls>": at least
inline constexpr int kSkipped = 77;

template <class... Args>
std::string text(const char* format = "", Args... args) {
  char line[300];
  if constexpr (sizeof...(args) == 0) return format;
  else std::snprintf(line, sizeof line, format, args...);
  return line;
}

inline void fail(const char* file, int line, const char* condition, const std::string& what) {
  if (++failures <= 5)
    std::fprintf(stderr, "rank %d: %s:%d: failed: %s %s\n", rank, std::strrchr(file, '/') + 1, line, condition,
                 what.c_str());
}

inline void begin(int level = MPI_THREAD_SINGLE) {
  int provided = level;
  if (level == MPI_THREAD_SINGLE) MPI_Init(nullptr, nullptr);
  else MPI_Init_thread(nullptr, nullptr, level, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (provided < level) {
    if (rank == 0) std::puts("skipped: this MPI library has not the thread level that the test needs");
    MPI_Finalize();
    std::exit(kSkipped);
  }
}

// A call that must end with an error whose text says this; the report counts it.
inline void refused(const char* text, int rc) {
  char message[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (rc != MPI_SUCCESS) MPI_Error_string(rc, message, &length);
  CHECK(rc != MPI_SUCCESS && std::strstr(message, text), "'%s' does not say '%s'", message, text);
  ++expected["errors"];
}

// Prints the expectations; 0 where no check failed on any rank.
inline int verdict() {
  std::string line = "expect " + std::to_string(rank);
  for (const auto& [entry, value] : expected) line += " " + entry + "=" + std::to_string(value);
  std::puts(line.c_str());
  std::fflush(stdout);
  int mine = failures, worst = 0;
  MPI_Reduce(&mine, &worst, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Bcast(&worst, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return worst ? 1 : 0;
}
inline int finish() {
  const int status = verdict();
  MPI_Finalize();
  return status || failures;
}

// The MPI library's own function, past Crimp and every tool. This is also how a program that looks functions up in
// libmpi's handle (ctypes, cffi, Julia) goes past them.
inline void* in_libmpi(const char* name) {
  static void* const handle = [] {
    Dl_info info{};
    dladdr(dlsym(RTLD_DEFAULT, "PMPI_Get_version"), &info);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  return handle ? dlsym(handle, name) : nullptr;
}
inline int native_allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  static const auto f = reinterpret_cast<decltype(&MPI_Allreduce)>(in_libmpi("PMPI_Allreduce"));
  return f(send, receive, count, type, op, comm);
}

inline std::uint64_t random_bits(std::uint64_t at, std::uint64_t rank_salt) {  // splitmix64
  std::uint64_t z = (at + 1) * 0x9e3779b97f4a7c15 + (rank_salt << 40);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}
// In [-1, 1).
inline double value(std::uint64_t at, int of_rank, unsigned salt = 0) {
  return std::ldexp(static_cast<double>(random_bits(at, static_cast<unsigned>(of_rank) + 16 * salt) >> 11), -52) - 1;
}

// Relative error that the codec of CRIMP_CODEC may make on one value. What needs residuals is replaced by fp16 in these
// tests.
inline double codec_error() {
  const char *codec = std::getenv("CRIMP_CODEC"), *algorithm = std::getenv("CRIMP_ALGORITHM");
  const double once = codec && !std::strcmp(codec, "bf16") ? 0x1p-8 : codec && std::strcmp(codec, "none") ? 0x1p-11 : 0;
  // Where sums are encoded, they are rounded once more.
  return algorithm && (!std::strcmp(algorithm, "two_shot") || !std::strcmp(algorithm, "hierarchical") ||
                       !std::strcmp(algorithm, "auto"))
             ? 2.01 * once
             : once;
}

// Of a rank's values up to 1, whatever their size: eight sigma of thc's rounding.
inline double codec_noise() {
  const char* codec = std::getenv("CRIMP_CODEC");
  return codec && !std::strncmp(codec, "thc", 3) ? 0.7 : 0;
}

// True where all ranks of `comm` hold the same bits.
inline bool identical(const void* buffer, std::size_t bytes, MPI_Comm comm) {
  std::vector<char> first(static_cast<const char*>(buffer), static_cast<const char*>(buffer) + bytes);
  MPI_Bcast(first.data(), static_cast<int>(bytes), MPI_BYTE, 0, comm);
  return std::memcmp(first.data(), buffer, bytes) == 0;
}

// One sum of `count` floats over `comm`, checked: no error, near the exact sum, bit-identical on all ranks; `exactly`:
// MPI's own bits. Members are world ranks. Call it from one thread per communicator.
inline void sum_floats(MPI_Comm comm, const std::vector<int>& members, int count, unsigned salt, bool exactly = false) {
  std::vector<float> in(static_cast<std::size_t>(count)), out(in.size()), plain(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(value(i, rank, salt));
  CHECK(MPI_Allreduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, comm) == MPI_SUCCESS);
  if (exactly) {
    native_allreduce(in.data(), plain.data(), count, MPI_FLOAT, MPI_SUM, comm);
    CHECK(std::memcmp(plain.data(), out.data(), out.size() * sizeof(float)) == 0, "count %d", count);
    return;
  }
  const double allowed = static_cast<double>(members.size()) * (codec_error() + codec_noise() + 0x1p-22);
  for (std::size_t i = 0; i < in.size(); ++i) {
    double sum = 0;
    for (const int m : members) sum += static_cast<float>(value(i, m, salt));
    CHECK(std::abs(out[i] - sum) <= allowed, "element %zu is %.9g, not %.9g", i, static_cast<double>(out[i]), sum);
  }
  CHECK(identical(out.data(), out.size() * sizeof(float), comm), "count %d", count);
}

}  // namespace check
