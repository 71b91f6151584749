#include "comm/session.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "comm/algorithms.hpp"
#include "comm/mpi_transport.hpp"
#include "comm/pipeline.hpp"
#include "comm/runtime.hpp"
#include "core/float_environment.hpp"
#include "core/log.hpp"
#include "crimp/collective.hpp"

namespace crimp {
namespace {

constexpr const char* kOwnerSuffix = "\x01owner";  // of keys of owners' residuals

void sum_plain(MPI_Comm comm, float* buffer, std::uint64_t count) {
  check_mpi(PMPI_Allreduce(MPI_IN_PLACE, buffer, static_cast<int>(count), MPI_FLOAT, MPI_SUM, comm), "MPI_Allreduce");
}

// Making communicators inside a call hangs Open MPI 4.1 where several threads call on several communicators in different orders on
// different ranks; so with MPI_THREAD_MULTIPLE nodes are formed only when asked for.
bool wants_nodes(MPI_Comm comm, const Settings& settings) {
  if (settings.algorithm != "auto") return settings.algorithm == "hierarchical";
  int level = MPI_THREAD_SINGLE, highest = level;
  PMPI_Query_thread(&level);
  check_mpi(PMPI_Allreduce(&level, &highest, 1, MPI_INT, MPI_MAX, comm), "MPI_Allreduce");
  return highest != MPI_THREAD_MULTIPLE;
}

}  // namespace

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
      calls_(runtime.settings().periods), chooser_(runtime.settings().algorithm), scratch_(runtime.workers(), runtime.cuda_aware()) {
  if (!usable_ || !wants_nodes(comm, runtime.settings())) return;
  node_ = std::make_unique<MpiNode>(comm, rank, runtime.settings().node_size);
  if (!node_->useful()) {
    release();
    return;
  }
  if (node_->rank() == 0) {
    int leader = 0;
    check_mpi(PMPI_Comm_rank(node_->leaders(), &leader), "MPI_Comm_rank");
    leaders_ = std::make_unique<MpiTransport>(node_->leaders(), leader, node_->nodes());
  }
  hierarchy_ = {node_.get(), leaders_.get(), node_->nodes(), Algorithm::allgather};
  chooser_.set_hierarchy(&hierarchy_, [comm = node_->leaders()](float* buffer, std::uint64_t count) { sum_plain(comm, buffer, count); });
}

Session::~Session() = default;

void Session::release() {
  if (node_) node_->free();
  leaders_.reset();
  node_.reset();
}

Layout Session::find_layout(const AllreduceRequest& request) {
  if (request.layout) return *request.layout;
  const std::uint32_t refuted = calls_.refutations();
  Layout layout = calls_.observe(request.count, request.dtype);
  if (calls_.refutations() != refuted) residuals_.forget(CallSequence::kKeyPrefix);  // nobody will ask for them again
  return layout;
}

bool Session::choose_codecs(const Layout& layout, std::vector<const Codec*>& codecs, Pass* why) {
  const bool named = layout.source == Layout::Source::named || layout.source == Layout::Source::negotiated;
  bool any = false;
  for (const Segment& segment : layout.segments) {
    const bool sums = segment.use == Segment::Use::sum;
    const Codec* codec = !sums ? nullptr : named ? runtime_.codec_for(segment.key, segment.count) : runtime_.codec().get();
    if (sums && !codec) runtime_.report.excluded(segment.key.empty() ? "(unnamed)" : segment.key, segment.count);
    // A tensor without a name has nothing that a residual could belong to.
    if (codec && codec->memory().kept() && runtime_.settings().error_feedback && segment.key.empty()) {
      codec = runtime_.unknown_layout_codec().get();
      if (!codec && !layout.known()) {
        *why = Pass::unknown_layout;
        return false;
      }
    }
    codecs.push_back(codec);
    any = any || codec;
  }
  if (!any) *why = Pass::rules;  // or all are unnamed and CRIMP_UNKNOWN_LAYOUT=none
  return any;
}

// Tensors that a rule excludes travel together, in one small exact call.
void Session::sum_excluded(const AllreduceRequest& request, const Layout& layout, const std::vector<const Codec*>& codecs, const CallValues& values,
                           std::span<char> packed) {
  const std::size_t element = size_of(request.dtype);
  Backend& backend = values.backend();
  const auto each = [&](auto&& move) {
    std::size_t at = 0;
    for (std::size_t s = 0; s < codecs.size(); ++s) {
      if (codecs[s] || layout.segments[s].use == Segment::Use::skip) continue;
      const std::size_t bytes = layout.segments[s].count * element;
      move(layout.segments[s].offset * element, at, bytes);
      at += bytes;
    }
    backend.settle();
  };
  if (packed.empty()) return;
  // Whatever fails here, the other ranks wait for this one.
  std::optional<Error> failure;
  try {
    each([&](std::size_t from, std::size_t at, std::size_t bytes) { backend.read(packed.data() + at, static_cast<const char*>(values.send()) + from, bytes); });
  } catch (const Error& e) {
    failure = e;
  }
  check_mpi(request.sum_exactly(packed.data(), packed.size() / element), "MPI_Allreduce");
  if (failure) throw Error(*failure);
  each([&](std::size_t to, std::size_t at, std::size_t bytes) { backend.write(static_cast<char*>(values.receive()) + to, packed.data() + at, bytes); });
}

bool Session::choose_algorithms(const CallParts& parts, Transport& transport, CallValues& values, Pass* why) {
  double predicted = 0, plain = 0;
  bool trial = false;
  for (const auto& part : parts) {
    Choice choice;
    try {
      choice = chooser_.choose(
          transport, part->query, [&](float* buffer, std::uint64_t count) { sum_plain(comm_, buffer, count); }, [&] { return values.time(*part); });
    } catch (const Error& e) {  // of memory for measuring all ranks say so alike, and nothing of the call has been sent
      if (e.code() != ErrorCode::out_of_memory) throw;
      *why = Pass::memory;
      return false;
    }
    part->take(choice, hierarchy_, size_);
    predicted += choice.predicted_s;
    plain += choice.plain_s;
    trial = trial || choice.trial;
  }
  *why = Pass::slower;
  return trial || predicted == 0 || predicted < plain;
}

std::uint8_t Session::range_flags(const AllreduceRequest& request, const Layout& layout, const std::vector<const Codec*>& codecs, const CallParts& parts,
                                  CallValues& values, bool* all_zero) {
  std::vector<Group> groups;
  std::vector<const CallPart*> part_of;
  for (std::size_t s = 0; s < codecs.size(); ++s) {
    if (!codecs[s]) continue;
    groups.push_back({layout.segments[s].offset, layout.segments[s].count});
    part_of.push_back(std::find_if(parts.begin(), parts.end(), [&](const auto& p) { return p->call.codec == codecs[s]; })->get());
  }
  std::vector<double> largest(groups.size());
  values.backend().magnitudes(request.dtype, values.send(), groups, largest.data());
  std::uint8_t flags = 0;
  *all_zero = true;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const CollectiveCall& call = part_of[g]->call;
    *all_zero = *all_zero && largest[g] == 0;
    const bool too_small = request.dtype == Dtype::f64 && largest[g] > 0 && largest[g] < 0x1p-100;
    // Where sums are encoded they must stay in range, too, however the values are rounded first.
    const double room = entry_of(call.algorithm).sums_encoded ? (1 - 0x1p-9) / size_ : 1;
    if (!(largest[g] <= room * static_cast<double>(call.codec->traits().max_magnitude)) || too_small) flags |= kFlagExact;
  }
  return flags;
}

void Session::set_extents(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
  powersgd::Extents& known = extents_[name];
  if (known.count != rows * cols) known = {.count = rows * cols};
  known.cols = cols;
  known.given = true;
}

void Session::find_extents(const CallParts& parts) {
  // Keys that nobody asks for any more.
  if (extents_.size() > 4 * CallSequence::kLongestPeriod) std::erase_if(extents_, [](const auto& entry) { return !entry.second.given; });
  for (const auto& part : parts) {
    if (!part->call.codec->traits().whole_tensors) continue;
    for (const Segment& segment : part->layout.segments)
      part->call.extents.push_back(segment.use == Segment::Use::skip || segment.key.empty() ? nullptr : &extents_[segment.key]);
  }
}

void Session::find_memories(const CallParts& parts, const Layout& layout, Allocator& memory, bool absent) {
  const auto find = [&](const CallPart& part, const char* suffix, auto&& elements) {
    std::vector<float*> all;
    for (const Segment& segment : part.layout.segments)
      all.push_back(segment.use == Segment::Use::skip ? nullptr : residuals_.find(segment.key + suffix, elements(segment), memory));
    return all;
  };
  for (const auto& part : parts) {
    const Codec& codec = *part->call.codec;
    if (codec.memory().kept() && (!absent || part->call.hierarchy) && part->encodes())
      part->call.residuals = find(*part, "", [&](const Segment& segment) {
        const auto known = codec.traits().whole_tensors ? extents_.find(segment.key) : extents_.end();
        return known == extents_.end() ? codec.memory_elements(segment.count) : powersgd::memory_elements(segment.count, codec, &known->second);
      });
    // As long as the tensor, though a rank owns a share of it: shares move when tensors are merged otherwise. Untouched pages cost nothing.
    if (layout.known() && part->owner_memory())
      part->call.owner_residuals = find(*part, kOwnerSuffix, [&](const Segment& segment) { return segment.count + codec.state_elements(segment.count); });
  }
}

Session::Ready Session::make_ready(const AllreduceRequest& request, const Layout& layout, const std::vector<const Codec*>& codecs, const CallParts& parts,
                                   CallValues& values) {
  Ready ready;
  std::size_t excluded = 0, host_bodies = 0;
  for (std::size_t s = 0; s < codecs.size(); ++s)
    if (!codecs[s] && layout.segments[s].use == Segment::Use::sum) excluded += layout.segments[s].count * size_of(request.dtype);
  for (const auto& part : parts) host_bodies += part->host_bodies() ? arena_bytes(part->call, size_) : 0;
  try {
    values.enter(parts, Arena::padded(excluded) + host_bodies);
    Backend& backend = values.backend();
    bool all_zero;
    ready.flags = range_flags(request, layout, codecs, parts, values, &all_zero);
    // A rank that joined early (hvd.join) gives zeros in place of tensors; its residuals stay where they are.
    const bool absent = layout.source == Layout::Source::negotiated && all_zero;
    find_extents(parts);
    if (runtime_.settings().error_feedback) find_memories(parts, layout, backend.memory(), absent);

    const std::uint64_t widened = request.dtype == Dtype::f32 ? 0 : Arena::padded(request.count * sizeof(float));
    std::uint64_t bytes = values.direct() ? 0 : widened + Arena::padded(excluded), value_bytes = widened;
    for (const auto& part : parts) {
      CollectiveCall& call = part->call;
      if (values.direct()) call.backend = &backend, call.values = &values.values();
      const bool elsewhere = values.direct() && part->host_bodies();
      bytes += elsewhere ? 0 : arena_bytes(call, size_);
      if (!values.direct()) continue;
      value_bytes += crimp::value_bytes(call);
      if (elsewhere) continue;
      Cut cut;
      for (std::uint64_t i = 0; i < Pipeline::chunks_of(call) && (i == 0 || part->layout.segments.size() > 1); ++i) {
        cut.make(call, {}, 0, Pipeline::chunk_begin(call, i), Pipeline::chunk_end(call, i));
        backend.prepare(*call.codec, cut.shape, size_);
      }
    }
    values.bodies().reserve(bytes);
    if (values.direct()) values.values().reserve(value_bytes);
    backend.prepare(values.bodies());
    if (widened) ready.widened = reinterpret_cast<float*>(values.values().take(widened));
    if (excluded) ready.packed = {reinterpret_cast<char*>(values.packed().take(excluded)), excluded};
    if (widened && !ready.flags) backend.widen(request.dtype, values.send(), ready.widened, request.count);
    ready.arena = &values.bodies();
  } catch (const std::exception& e) {
    ready.flags |= kFlagNoMemory;
    for (const auto& part : parts) part->call.residuals.clear(), part->call.owner_residuals.clear(), part->call.extents.clear();  // they may be fewer than the segments
    if (!std::exchange(told_memory_, true))
      log(LogLevel::warn, std::string(e.what()) + "; this call, and others for which that is so, go through MPI on all ranks");
  }
  return ready;
}

bool Session::allreduce(const AllreduceRequest& request, Pass* why) {
  if (compress(request, why)) {
    residuals_.keep();
    return true;
  }
  if (*why == Pass::memory) {  // MPI needs some
    residuals_.drop_new();
    scratch_.release();
  }
  return false;
}

bool Session::compress(const AllreduceRequest& request, Pass* why) {
  const auto begin = Clock::now();
  const FloatEnvironment environment;
  const Layout layout = find_layout(request);
  std::vector<const Codec*> codecs;
  if (!choose_codecs(layout, codecs, why)) return false;
  if (!layout.known() && calls_.refutations() > 0 && !told_unknown_) {
    told_unknown_ = true;
    if (rank_ == 0)
      log(LogLevel::info, "the calls on a communicator stopped repeating; until they repeat again their tensors are unknown and have no residuals");
  }

  const CallParts parts = parts_of(request, layout, codecs, runtime_.settings());
  MpiTransport transport(comm_, rank_, size_);
  CallValues values(request, scratch_);
  if (!choose_algorithms(parts, transport, values, why)) return false;
  for (const auto& part : parts) part->call.sequence = sequence_++;
  const auto chosen = Clock::now();

  // From here on this rank may not decide alone: what it cannot do becomes a flag in its headers. Where its values are changes no byte of
  // what it sends.
  const Ready ready = make_ready(request, layout, codecs, parts, values);
  Backend& backend = values.backend();
  std::optional<Error> failure;
  for (const auto& part : parts) {
    CollectiveCall& call = part->call;
    call.flags = ready.flags;
    call.in = ready.widened ? ready.widened : static_cast<const float*>(values.send());
    call.out = ready.widened ? ready.widened : static_cast<float*>(values.receive());
    const bool first = part == parts.front();
    const auto now = Clock::now();
    Arena* const arena = ready.arena && part->host_bodies() ? &values.packed() : ready.arena;
    const CollectiveResult result = allreduce_compressed(transport, arena, runtime_.workers(), call, runtime_.trace());
    // All parts of a call carry the same flags, so only the first can end it, and then nothing has changed.
    if (result.flags) {
      *why = result.flags & kFlagNoMemory ? Pass::memory : Pass::range;
      return false;
    }
    if (result.error) {
      if (!failure) failure = result.error;
      continue;
    }
    const auto end = Clock::now();
    chooser_.took(part->query, part->choice, seconds(end - (first ? chosen : now)));
    runtime_.report.compressed({call.codec->spec(), name_of(layout.source), entry_of(call.algorithm).name, part->choice.why, part->choice.predicted_s,
                                part->choice.plain_s, part->query.plain_bytes, result.sent_bytes, result.received_bytes, result.encode_s, result.wire_s,
                                result.decode_s, seconds(end - (first ? begin : now))});
  }
  const auto attempt = [&](auto&& work) {
    try {
      work();
    } catch (const Error& e) {
      if (e.code() == ErrorCode::transport_failed) throw;
      if (!failure) failure = e;
    }
  };
  if (ready.widened && !failure)
    attempt([&] {
      for (std::size_t s = 0; s < codecs.size(); ++s)
        if (const Segment& segment = layout.segments[s]; codecs[s])
          backend.narrow(request.dtype, ready.widened + segment.offset, static_cast<char*>(values.receive()) + segment.offset * size_of(request.dtype),
                         segment.count);
    });
  attempt([&] { backend.settle(); });
  attempt([&] { sum_excluded(request, layout, codecs, values, ready.packed); });
  if (values.on_device()) runtime_.report.on_device(values.through_host());
  if (!failure) attempt([&] { values.leave(layout); });
  if (failure) throw Error(*failure);
  return true;
}

}  // namespace crimp
