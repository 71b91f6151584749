#include "comm/session.hpp"

#include <cstring>

#include "comm/mpi_transport.hpp"
#include "comm/runtime.hpp"
#include "core/convert.hpp"
#include "core/float_environment.hpp"
#include "core/log.hpp"
#include "crimp/collective.hpp"

namespace crimp {

bool settings_agree(MPI_Comm comm, int rank, int size, const Settings& settings, bool legal) {
  const auto n = static_cast<std::size_t>(size);
  const std::uint64_t mine = digest(settings) ^ (legal ? 0 : 1);
  std::vector<std::uint64_t> all(n);
  check_mpi(PMPI_Allgather(&mine, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, comm), "MPI_Allgather");
  std::size_t other = 0;
  while (other < n && all[other] == all[0]) ++other;
  if (other == n) return true;

  // Everybody knows by now; what follows is for the message.
  struct Value {
    char text[64] = {};
  };
  std::string what;
  for (const Option& option : option_table()) {
    if (!option.agreed) continue;
    Value value;
    const std::string text = option.get(settings);
    std::strncpy(value.text, text.c_str(), sizeof value.text - 1);
    std::vector<Value> values(n);
    check_mpi(PMPI_Allgather(&value, sizeof value, MPI_BYTE, values.data(), sizeof value, MPI_BYTE, comm), "MPI_Allgather");
    for (std::size_t r = 1; r < n; ++r)
      if (std::strcmp(values[0].text, values[r].text) != 0) {
        what += (what.empty() ? "" : "; ") + std::string(option.name) + " is '" + values[0].text + "' on rank 0 and '" + values[r].text +
                "' on rank " + std::to_string(r);
        break;
      }
  }
  if (rank == 0)
    log(LogLevel::error, "the settings differ between the ranks of a communicator of " + std::to_string(size) + ": " +
                             (what.empty() ? "a rank has an illegal setting or another version of Crimp" : what) +
                             "; its calls pass through uncompressed. Give all ranks the same (mpirun -x, crimp run)");
  return false;
}

Session::Session(Runtime& runtime, MPI_Comm comm, int rank, int size)
    : runtime_(runtime), comm_(comm), rank_(rank), size_(size), usable_(settings_agree(comm, rank, size, runtime.settings(), runtime.legal())),
      calls_(runtime.settings().periods) {}

bool Session::allreduce(const AllreduceRequest& request, Pass* why) {
  const auto begin = Clock::now();
  const FloatEnvironment environment;
  const Settings& settings = runtime_.settings();

  const std::uint32_t refuted = calls_.refutations();
  Layout layout = request.segments ? Layout{Layout::Source::named, *request.segments} : calls_.observe(request.count, request.dtype);
  if (calls_.refutations() != refuted) residuals_.forget(CallSequence::kKeyPrefix);  // nobody will ask for them again
  const Codec* codec = runtime_.codec().get();
  if (codec->traits().needs_residual && settings.error_feedback && !layout.known()) {
    codec = runtime_.unknown_layout_codec().get();
    if (!codec) {
      *why = Pass::unknown_layout;
      return false;
    }
    if (!told_unknown_ && calls_.refutations() > 0) {
      told_unknown_ = true;
      if (rank_ == 0)
        log(LogLevel::info, "the calls on a communicator stopped repeating; until they repeat again they use " + codec->spec() +
                                " without residuals");
    }
  }

  CollectiveCall call{};
  call.count = request.count;
  call.codec = codec;
  call.layout = &layout;
  call.dtype = request.dtype;
  call.sequence = sequence_++;
  call.chunk = chunk_elements(settings.chunk, *codec, size_);
  call.checksum = settings.checksum;

  // From here on this rank may not decide alone: what it cannot do becomes a flag in its header.
  const double largest = magnitude(request.dtype, request.send, request.count);
  const bool too_small = request.dtype == Dtype::f64 && largest > 0 && largest < 0x1p-100;
  if (!(largest <= codec->traits().max_magnitude) || too_small) call.flags |= kFlagExact;
  Arena* arena = nullptr;
  float* staging = nullptr;
  try {
    if (codec->traits().needs_residual && settings.error_feedback)
      for (const Segment& segment : layout.segments) call.residuals.push_back(residuals_.find(segment.key, segment.count));
    const std::uint64_t staging_bytes = request.dtype == Dtype::f32 ? 0 : Arena::padded(request.count * sizeof(float));
    arena_.reserve(arena_bytes(call, size_) + staging_bytes);
    if (staging_bytes) staging = reinterpret_cast<float*>(arena_.take(staging_bytes));
    arena = &arena_;
  } catch (const std::exception& e) {
    call.flags |= kFlagNoMemory;
    call.residuals.clear();  // it may hold fewer than the segments
    log(LogLevel::warn, std::string(e.what()) + "; this call goes through MPI on all ranks");
  }
  if (staging && !call.flags) widen(request.dtype, request.send, staging, request.count);
  call.in = staging ? staging : static_cast<const float*>(request.send);
  call.out = staging ? staging : static_cast<float*>(request.receive);

  MpiTransport transport(comm_, rank_, size_);
  const CollectiveResult result = compressed_allgather(transport, arena, runtime_.workers(), call, runtime_.trace());
  arena_.reset();
  if (result.flags) {
    *why = result.flags & kFlagNoMemory ? Pass::memory : Pass::range;
    return false;
  }
  if (result.error) throw Error(*result.error);
  if (staging) narrow(request.dtype, staging, request.receive, request.count);

  runtime_.report.compressed({codec->spec(), name_of(layout.source), request.count * size_of(request.dtype), result.sent_bytes,
                              result.received_bytes, result.encode_s, result.wire_s, result.decode_s, seconds(Clock::now() - begin)});
  return true;
}

}  // namespace crimp
