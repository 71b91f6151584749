// The C interface of include/crimp/crimp.h.
#include <array>
#include <climits>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "allreduce.hpp"
#include "core/reserve.hpp"
#include "crimp/crimp.h"
#include "guard.hpp"
#include "mpi/half_type.hpp"
#include "mpi/large_counts.hpp"
#include "mpi/runtime.hpp"
#include "mpi/session.hpp"
#include "next.hpp"
#include "passed_span.hpp"
#include "self_check.hpp"
#include "staged.hpp"

namespace crimp {
namespace {

struct Handles {
  MPI_Datatype type;
  MPI_Op sum;
};

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

// Exact, by MPI.
int sum_exactly(const void* sendbuf, void* recvbuf, std::uint64_t count, const Handles& h, std::size_t element,
                MPI_Comm comm) {
  return in_parts(count, [&](std::uint64_t at, int n) {
    const void* from = sendbuf == MPI_IN_PLACE ? sendbuf : static_cast<const char*>(sendbuf) + at * element;
    return pass_allreduce(next_pmpi(), from, static_cast<char*>(recvbuf) + at * element, n, h.type, h.sum, comm);
  });
}

// What MPI would crash on where it can be known.
void check_buffers(const void* sendbuf, const void* recvbuf, std::uint64_t count, std::size_t element) {
  const auto refuse = [&](const std::string& what, const std::string& legal) {
    throw Error(ErrorCode::argument_invalid,
                "crimp_allreduce was given " + what + " for " + std::to_string(count) + " elements; legal is " + legal);
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

// Null where nothing is named.
std::shared_ptr<const Layout> layout_of(LayoutCache& known, const crimp_segment* segments, std::size_t n,
                                        std::uint64_t count) {
  if (!segments) return {};
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

}  // namespace
}  // namespace crimp

using namespace crimp;

int crimp_allreduce(const void* sendbuf, void* recvbuf, uint64_t count, crimp_dtype dtype, MPI_Comm comm,
                    const crimp_segment* segments, size_t segment_count) {
  Handles h{};
  bool summed = false;
  Session* left = nullptr;
  PassReason passed = PassReason::off;
  int rc = guard(comm, [&] {
    Runtime& runtime = Runtime::get();
    if (!runtime.started()) {
      runtime.start(false);
      check_at_start();
    }
    fill_reserve();
    h = handles(dtype);
    const auto type = static_cast<Dtype>(dtype);
    const auto named = insist([&] { return layout_of(runtime.layouts, segments, segment_count, count); });
    check_buffers(sendbuf, recvbuf, count, size_of(type));
    const SumCall call{sendbuf, recvbuf, count, h.type, h.sum, comm};
    PassReason why = PassReason::off;
    if (ranks_agree(comm, &why)) {
      const bool asks = segments && runtime.usable() && runtime.told_codecs.load(std::memory_order_relaxed);
      const Session* session = asks ? runtime.known_session(comm) : nullptr;
      const Eligibility eligible = classify(call, session && session->has_codecs());
      why = eligible.why;
      if (eligible.way == Way::compress || (eligible.way == Way::small && runtime.may_keep_momentum())) {
        AllreduceRequest request{sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf, recvbuf, count, type, named};
        request.sum_exactly = [&call, type](void* buffer, std::uint64_t n) {  // no more, or it is an allocation
          return sum_exactly(MPI_IN_PLACE, buffer, n, {call.datatype, call.op}, size_of(type), call.comm);
        };
        request.sum_by_mpi = [&call, type] {  // likewise
          return sum_exactly(call.sendbuf, call.recvbuf, call.count, {call.datatype, call.op}, size_of(type),
                             call.comm);
        };
        request.left = &left;
        summed = sum(call, eligible, request, &why);
      }
    }
    if (!summed) runtime.report.passed(passed = why);
    return MPI_SUCCESS;
  });
  if (rc != MPI_SUCCESS || summed) return rc;
  const PassedSpan span(passed, count);
  rc = sum_exactly(sendbuf, recvbuf, count, h, size_of(static_cast<Dtype>(dtype)), comm);
  if (left && rc == MPI_SUCCESS) left->left_ended();
  return rc;
}

namespace {

// The communicator's session, for what is said of it; null where its calls pass through.
Session* session_for(MPI_Comm comm, const char* function) {
  Runtime& runtime = Runtime::get();
  if (!runtime.started()) runtime.start(false);
  if (comm == MPI_COMM_NULL)
    throw Error(ErrorCode::argument_invalid, std::string(function) + " was given MPI_COMM_NULL");
  PassReason why = PassReason::off;
  return runtime.session(comm, &why);
}

}  // namespace

int crimp_set_algorithm(MPI_Comm comm, const char* name) {
  return guard(comm, [&] {
    Session* const session = session_for(comm, "crimp_set_algorithm");
    session ? session->set_algorithm(name) : check_algorithm("the argument of crimp_set_algorithm", name ? name : "");
    return MPI_SUCCESS;
  });
}

int crimp_set_codec(MPI_Comm comm, const char* pattern, const char* spec) {
  return guard(comm, [&] {
    if (Session* session = session_for(comm, "crimp_set_codec")) {
      session->set_codec(pattern, spec);
      Runtime::get().told_codecs.store(true, std::memory_order_relaxed);
    }
    return MPI_SUCCESS;
  });
}

int crimp_set_learning_rate(MPI_Comm comm, double rate) {
  return guard(comm, [&] {
    if (Session* session = session_for(comm, "crimp_set_learning_rate")) session->set_learning_rate(rate);
    return MPI_SUCCESS;
  });
}

int crimp_set_extents(MPI_Comm comm, const char* name, uint64_t rows, uint64_t cols) {
  return guard(comm, [&] {
    Session* const session = session_for(comm, "crimp_set_extents");
    session ? session->set_extents(name, rows, cols) : check_extents(name, rows, cols);
    return MPI_SUCCESS;
  });
}

int crimp_save(MPI_Comm comm, const char* directory) {
  return guard(comm, [&] {
    Session* const session = session_for(comm, "crimp_save");
    return !session || session->save(directory) ? MPI_SUCCESS : MPI_ERR_IO;
  });
}

int crimp_load(MPI_Comm comm, const char* directory, uint64_t* tensors) {
  return guard(comm, [&] {
    if (tensors) *tensors = 0;
    Session* const session = session_for(comm, "crimp_load");
    return !session || session->load(directory, tensors) ? MPI_SUCCESS : MPI_ERR_NO_SUCH_FILE;
  });
}

int crimp_datatype(crimp_dtype dtype, MPI_Datatype* type, MPI_Op* sum) {
  return guard(MPI_COMM_WORLD, [&] {
    const Handles h = handles(dtype);
    *type = h.type;
    *sum = h.sum;
    return MPI_SUCCESS;
  });
}

const char* crimp_version(void) { return CRIMP_VERSION; }
