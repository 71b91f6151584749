// The sums of the C interface (include/crimp/crimp.h), whose tensors the program names.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "allreduce.hpp"
#include "core/reserve.hpp"
#include "crimp/crimp.h"
#include "guard.hpp"
#include "handles.hpp"
#include "mpi/half_type.hpp"
#include "mpi/large_counts.hpp"
#include "mpi/runtime.hpp"
#include "mpi/session.hpp"
#include "next.hpp"
#include "passed_span.hpp"
#include "self_check.hpp"
#include "shared_sum.hpp"
#include "staged.hpp"

namespace crimp {

Handles handles(crimp_dtype dtype) {
  switch (dtype) {
    case CRIMP_FLOAT32: return {MPI_FLOAT, MPI_SUM};
    case CRIMP_FLOAT64: return {MPI_DOUBLE, MPI_SUM};
    case CRIMP_FLOAT16: return {half_type(Dtype::f16), half_sum(Dtype::f16)};
    case CRIMP_BFLOAT16: return {half_type(Dtype::bf16), half_sum(Dtype::bf16)};
  }
  throw Error(ErrorCode::argument_invalid, "crimp_dtype is " + std::to_string(static_cast<int>(dtype)) +
                                               ", legal is CRIMP_FLOAT32 (1) to CRIMP_BFLOAT16 (4)");
}

namespace {

// Exact, by MPI.
int sum_exactly(const void* sendbuf, void* recvbuf, std::uint64_t count, const Handles& h, std::size_t element,
                MPI_Comm comm) {
  return in_parts(count, [&](std::uint64_t at, int n) {
    const void* from = sendbuf == MPI_IN_PLACE ? sendbuf : static_cast<const char*>(sendbuf) + at * element;
    return pass_allreduce(next_pmpi(), from, static_cast<char*>(recvbuf) + at * element, n, h.type, h.sum, comm);
  });
}

// What MPI would crash on where it can be known.
void check_buffers(const char* function, const void* sendbuf, const void* recvbuf, std::uint64_t count,
                   std::size_t element) {
  const auto refuse = [&](const std::string& what, const std::string& legal) {
    throw Error(ErrorCode::argument_invalid, std::string(function) + " was given " + what + " for " +
                                                 std::to_string(count) + " elements; legal is " + legal);
  };
  if (count == 0) return;
  if (!sendbuf) refuse("no sendbuf (NULL)", "a buffer of so many, or MPI_IN_PLACE");
  if (!recvbuf) refuse("no recvbuf (NULL)", "a buffer of so many");
  if (recvbuf == MPI_IN_PLACE) refuse("MPI_IN_PLACE as recvbuf", "a buffer of so many; MPI_IN_PLACE is for sendbuf");
  if (const std::uint64_t most = PTRDIFF_MAX / element; count > most)
    refuse("a buffer", "up to " + std::to_string(most) + ", what an address space holds");
}

std::vector<Segment> read_segments(const crimp_segment* segments, std::size_t n, std::uint64_t count) {
  std::vector<Segment> out;
  std::unordered_map<std::string_view, std::size_t> names;
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (!segments[i].name || !*segments[i].name)
      throw Error(ErrorCode::layout_invalid, "segment " + std::to_string(i) + " has no name; every segment needs one");
    if (const auto [first, added] = names.emplace(segments[i].name, i); !added)
      throw Error(ErrorCode::layout_invalid,
                  "segments " + std::to_string(first->second) + " and " + std::to_string(i) + " are both named '" +
                      segments[i].name +
                      "'; what is kept of a tensor is kept under its name, so a name may stand in a call once");
    if (segments[i].count > count - at)
      throw Error(ErrorCode::layout_invalid, "segment " + std::to_string(i) + " ('" + segments[i].name +
                                                 "') reaches to element " + std::to_string(at + segments[i].count) +
                                                 ", the buffer has " + std::to_string(count));
    if (segments[i].count) out.push_back({segments[i].name, at, segments[i].count});
    at += segments[i].count;
  }
  if (at != count)
    throw Error(ErrorCode::layout_invalid,
                "the segments cover " + std::to_string(at) + " elements, the buffer has " + std::to_string(count));
  return out;
}

constexpr std::size_t kMostSegments = std::size_t{1} << 24;  // their names alone are gigabytes then

// Null where nothing is named.
std::shared_ptr<const Layout> layout_of(LayoutCache& known, const crimp_segment* segments, std::size_t n,
                                        std::uint64_t count) {
  if (!segments && n)
    throw Error(ErrorCode::layout_invalid, "no segments (NULL) were given, and a segment_count of " +
                                               std::to_string(n) + "; legal is NULL with 0, or an array of so many");
  if (!segments) return {};
  if (n > kMostSegments)
    throw Error(ErrorCode::layout_invalid,
                "a segment_count of " + std::to_string(n) + "; legal are at most " + std::to_string(kMostSegments));
  std::array<LayoutCache::Tensor, 8> few;  // in most calls; no allocation then
  std::vector<LayoutCache::Tensor> many(n <= few.size() ? 0 : n);
  const std::span<LayoutCache::Tensor> tensors = many.empty() ? std::span(few).first(n) : std::span(many);
  std::uint64_t end = 0;
  bool legal = true;
  for (std::size_t i = 0; i < n; ++i) {
    const crimp_segment& s = segments[i];
    tensors[i] = {s.name, s.count};
    legal = legal && s.name && s.count <= count - end;
    end += legal ? s.count : 0;
  }
  if (legal && end == count)
    if (auto layout = known.find(tensors)) return layout;
  auto layout = Layout::make(Layout::Source::named, read_segments(segments, n, count));
  known.put(tensors, layout);
  return layout;
}

// A sum as crimp.h's functions ask for it.
struct NamedSum {
  const char* function;
  const void* sendbuf;
  void* recvbuf;
  std::uint64_t count;  // of all elements that a rank gives
  crimp_dtype dtype;
  MPI_Comm comm;
  const crimp_segment* segments;
  std::size_t segment_count;
  int rank = -1;  // where ranks receive shares
};

// shares(): null where every rank receives all sums. pass(handles): through MPI; returns its code.
template <class MakeShares, class Pass>
int sum_named(const NamedSum& asked, const MakeShares& shares, const Pass& pass) {
  Handles h{};
  bool summed = false;
  Session* left = nullptr;
  PassReason passed = PassReason::off;
  int rc = guard(asked.comm, [&] {
    Runtime& runtime = Runtime::get();
    const bool running = ready();  // not in what MPI calls while it ends
    if (!running) require_mpi(asked.function);
    fill_reserve();
    h = handles(asked.dtype);
    const auto type = static_cast<Dtype>(asked.dtype);
    const auto named =
        insist([&] { return layout_of(runtime.layouts, asked.segments, asked.segment_count, asked.count); });
    check_buffers(asked.function, asked.sendbuf, asked.recvbuf, asked.count, size_of(type));
    const SumCall call{asked.sendbuf, asked.recvbuf, asked.count, h.type, h.sum, asked.comm, asked.rank >= 0};
    PassReason why = PassReason::off;
    if (running && ranks_agree(asked.comm, &why)) {
      const bool asks = asked.segments && runtime.usable() && runtime.told_codecs.load(std::memory_order_relaxed);
      const Session* session = asks ? runtime.known_session(asked.comm) : nullptr;
      const Eligibility eligible = classify(call, session && session->has_codecs());
      why = eligible.why;
      if (eligible.way == Way::compress || (eligible.way == Way::small && runtime.may_keep_momentum())) {
        AllreduceRequest request = request_of(call, type, shares(), std::max(asked.rank, 0));
        request.layout = named;
        request.sum_exactly = [&call, type](void* buffer, std::uint64_t n) {  // no more, or it is an allocation
          return sum_exactly(MPI_IN_PLACE, buffer, n, {call.datatype, call.op}, size_of(type), call.comm);
        };
        request.sum_by_mpi = [&pass, &h] { return pass(h); };  // likewise
        request.left = &left;
        summed = sum(call, eligible, request, &why);
      }
    }
    if (!summed) runtime.report.passed(passed = why);
    return MPI_SUCCESS;
  });
  if (rc != MPI_SUCCESS || summed) return rc;
  const PassedSpan span(passed, asked.count);
  rc = pass(h);
  if (left && rc == MPI_SUCCESS) left->left_ended();
  return rc;
}

bool has_two_groups(MPI_Comm comm) {
  int inter = 0;
  return PMPI_Comm_test_inter(comm, &inter) == MPI_SUCCESS && inter;
}

// Exact, by MPI: one call, or, where an int does not hold the count, a sum to each rank in parts. In place the first
// share lies where the results go, and rank 0's sum, the first, is done before others are written.
int scatter_exactly(const void* sendbuf, void* recvbuf, std::uint64_t recvcount, const Handles& h, std::size_t element,
                    MPI_Comm comm, const std::optional<RankOf>& group) {
  const NextMpi& mpi = next_pmpi();
  const bool one_group = group && !has_two_groups(comm);
  if (!one_group && !fits_int(static_cast<std::int64_t>(recvcount))) {
    PMPI_Comm_call_errhandler(comm == MPI_COMM_NULL ? MPI_COMM_WORLD : comm, MPI_ERR_COUNT);
    return MPI_ERR_COUNT;
  }
  // MPIs count all ranks' elements in an int, too.
  if (!one_group || recvcount <= most_elements() / static_cast<std::uint64_t>(group->ranks))
    return pass_shares(mpi,
                       ReduceScatterBlockSum<int>{sendbuf, recvbuf, static_cast<int>(recvcount), h.type, h.sum, comm});
  const auto* const values = static_cast<const char*>(sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf);
  for (int root = 0; root < group->ranks; ++root)
    if (const int rc = in_parts(recvcount, [&](std::uint64_t at, int n) {
          const char* const from = values + (static_cast<std::uint64_t>(root) * recvcount + at) * element;
          char* const to = static_cast<char*>(recvbuf) + at * element;
          const bool here = group->rank == root && from == to;
          return pass_shares(mpi, ReduceSum<int>{here ? MPI_IN_PLACE : from, to, n, h.type, h.sum, root, comm});
        }))
      return rc;
  return MPI_SUCCESS;
}

// The own group of a communicator; nothing: MPI_COMM_NULL, which MPI judges.
std::optional<RankOf> group_of(MPI_Comm comm) {
  int ranks = 0, rank = 0;
  if (comm == MPI_COMM_NULL || PMPI_Comm_size(comm, &ranks) != MPI_SUCCESS ||
      PMPI_Comm_rank(comm, &rank) != MPI_SUCCESS)
    return {};
  return RankOf{rank, ranks};
}

}  // namespace
}  // namespace crimp

using namespace crimp;

int crimp_allreduce(const void* sendbuf, void* recvbuf, uint64_t count, crimp_dtype dtype, MPI_Comm comm,
                    const crimp_segment* segments, size_t segment_count) {
  return sum_named(
      {"crimp_allreduce", sendbuf, recvbuf, count, dtype, comm, segments, segment_count},
      [] { return std::shared_ptr<const Shares>(); },
      [&](const Handles& h) {
        return sum_exactly(sendbuf, recvbuf, count, h, size_of(static_cast<Dtype>(dtype)), comm);
      });
}

int crimp_reduce_scatter_block(const void* sendbuf, void* recvbuf, uint64_t recvcount, crimp_dtype dtype, MPI_Comm comm,
                               const crimp_segment* segments, size_t segment_count) {
  const std::optional<RankOf> group = ready() || has_mpi() ? group_of(comm) : std::nullopt;
  const auto ranks = static_cast<std::uint64_t>(group ? group->ranks : 1);
  const std::uint64_t count = recvcount <= UINT64_MAX / ranks ? recvcount * ranks : UINT64_MAX;
  const NamedSum asked{"crimp_reduce_scatter_block", sendbuf, recvbuf, count, dtype, comm, segments, segment_count,
                       group ? group->rank : 0};
  return sum_named(
      asked,
      [&] {
        return make_shares(Collective::reduce_scatter, static_cast<int>(ranks),
                           [&](int r) { return static_cast<std::uint64_t>(r + 1) * recvcount; });
      },
      [&](const Handles& h) {
        return scatter_exactly(sendbuf, recvbuf, recvcount, h, size_of(static_cast<Dtype>(dtype)), comm, group);
      });
}
