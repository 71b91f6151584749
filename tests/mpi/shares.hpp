// Sums of which ranks receive shares, in all forms of MPI's: what programs that test them call.
#pragma once
#include <numeric>

#include "check.hpp"

namespace shares {

template <class F>
F native(F, const char* name) {
  return reinterpret_cast<F>(check::in_libmpi(name));
}

inline bool large = false;        // by the forms for MPI_Count
inline bool nonblocking = false;  // by those that do not block

// One call: elements that each rank receives of it.
struct Call {
  std::string what;
  std::vector<int> counts;  // of each rank
  int root = -1;            // MPI_Reduce; -1: MPI_Reduce_scatter, -2: MPI_Reduce_scatter_block
  std::size_t total() const { return static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), 0L)); }
  std::size_t begin() const {
    return static_cast<std::size_t>(std::accumulate(counts.begin(), counts.begin() + check::rank, 0L));
  }
  std::size_t own() const { return static_cast<std::size_t>(counts[static_cast<std::size_t>(check::rank)]); }
  // MPI may read them until the call is complete.
  const std::vector<MPI_Count>& large_counts() const {
    static std::map<const Call*, std::vector<MPI_Count>> all;
    auto& of = all[this];
    if (of != std::vector<MPI_Count>(counts.begin(), counts.end())) of.assign(counts.begin(), counts.end());
    return of;
  }

#define CRIMP_CALL(name, ...) \
  (by_library ? native(&MPI_##name, "PMPI_" #name) : &MPI_##name)(send, receive, __VA_ARGS__)
  int start(const void* send, void* receive, MPI_Datatype type, MPI_Op op, MPI_Request* request,
            MPI_Comm comm = MPI_COMM_WORLD, bool by_library = false) const {
    const int of_root = counts[static_cast<std::size_t>(std::max(root, 0))];
#if MPI_VERSION >= 4
    if (large && root >= 0) return CRIMP_CALL(Ireduce_c, of_root, type, op, root, comm, request);
    if (large && root == -1) return CRIMP_CALL(Ireduce_scatter_c, large_counts().data(), type, op, comm, request);
    if (large) return CRIMP_CALL(Ireduce_scatter_block_c, counts[0], type, op, comm, request);
#endif
    if (root >= 0) return CRIMP_CALL(Ireduce, of_root, type, op, root, comm, request);
    if (root == -1) return CRIMP_CALL(Ireduce_scatter, counts.data(), type, op, comm, request);
    return CRIMP_CALL(Ireduce_scatter_block, counts[0], type, op, comm, request);
  }
  int run(const void* send, void* receive, MPI_Datatype type, MPI_Op op, bool by_library) const {
    const auto comm = MPI_COMM_WORLD;
    const int of_root = counts[static_cast<std::size_t>(std::max(root, 0))];
    if (nonblocking) {
      MPI_Request request = MPI_REQUEST_NULL;
      const int rc = start(send, receive, type, op, &request, comm, by_library);
      return rc != MPI_SUCCESS ? rc : MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
#if MPI_VERSION >= 4
    if (large && root >= 0) return CRIMP_CALL(Reduce_c, of_root, type, op, root, comm);
    if (large && root == -1) return CRIMP_CALL(Reduce_scatter_c, large_counts().data(), type, op, comm);
    if (large) return CRIMP_CALL(Reduce_scatter_block_c, counts[0], type, op, comm);
#endif
    if (root >= 0) return CRIMP_CALL(Reduce, of_root, type, op, root, comm);
    if (root == -1) return CRIMP_CALL(Reduce_scatter, counts.data(), type, op, comm);
    return CRIMP_CALL(Reduce_scatter_block, counts[0], type, op, comm);
  }
#undef CRIMP_CALL
};

// On MPI_COMM_WORLD, of `total` elements or a few fewer.
inline std::vector<Call> calls_of(int total) {
  const auto n = static_cast<std::size_t>(check::size);
  std::vector<Call> all{{"block", std::vector<int>(n, total / check::size), -2},
                        {"even", std::vector<int>(n, total / check::size), -1},
                        {"uneven", std::vector<int>(n, 0), -1},
                        {"first without", std::vector<int>(n, total / check::size), -1},
                        {"last most", std::vector<int>(n, 0), -1}};
  // In place the last rank's sums then lie where another's values still are to be encoded.
  all[4].counts[0] = total / 5;
  all[4].counts.back() = total - (check::size > 1 ? total / 5 : 0);
  int left = total;
  for (std::size_t r = 0; r < n; ++r)
    left -= all[2].counts[r] = r + 1 == n ? left : (r % 2 ? std::min(7, left) : left / 2);
  all[3].counts[0] = check::size > 1 ? 0 : total;
  for (int root = 0; root < check::size; ++root) {
    Call& call = all.emplace_back(Call{"to " + std::to_string(root), std::vector<int>(n, 0), root});
    call.counts[static_cast<std::size_t>(root)] = total;
  }
  return all;
}

}  // namespace shares
