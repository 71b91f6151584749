#include "comm/session.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "backend/device_plugin.hpp"
#include "comm/algorithms.hpp"
#include "comm/mpi_transport.hpp"
#include "comm/pipeline.hpp"
#include "comm/runtime.hpp"
#include "core/convert.hpp"
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

// Values of the call that its codec sees, for measuring the codec. `home`: of the values; null: the host's.
std::vector<float> sample_of(const AllreduceRequest& request, const Layout& part, Allocator* home) {
  const auto longest = std::max_element(part.segments.begin(), part.segments.end(), [](const Segment& a, const Segment& b) {
    return (a.use == Segment::Use::skip ? 0 : a.count) < (b.use == Segment::Use::skip ? 0 : b.count);
  });
  std::vector<float> values(std::min(longest->count, kSampleElements));
  const char* from = static_cast<const char*>(request.send) + longest->offset * size_of(request.dtype);
  std::vector<char> here(home ? values.size() * size_of(request.dtype) : 0);
  if (home) home->read(here.data(), from, here.size());
  widen(request.dtype, home ? here.data() : from, values.data(), values.size());
  return values;
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
      calls_(runtime.settings().periods), chooser_(runtime.settings().algorithm), host_(runtime.workers()) {
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

// What a call in device memory needs besides: made at the first one.
struct Session::Device {
  Device(const DevicePlugin& plugin, int at, bool device_bodies)
      : index(at), backend(plugin.make_backend(at, device_bodies)), staging(backend->staging()), values(backend->memory()), packed(plugin.pinned()) {}
  int index;
  std::unique_ptr<Backend> backend;
  Arena staging, values, packed;
};

Session::Device& Session::device(const DevicePlugin& plugin, int index) {
  if (!device_ || device_->index != index) device_ = std::make_unique<Device>(plugin, index, runtime_.cuda_aware());
  return *device_;
}

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

bool Session::choose(const Layout& layout, std::vector<const Codec*>& codecs, Pass* why) {
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
void Session::sum_excluded(const AllreduceRequest& request, const Layout& layout, const std::vector<const Codec*>& codecs, Backend& backend,
                           std::span<char> packed) {
  const std::size_t element = size_of(request.dtype);
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
    each([&](std::size_t from, std::size_t at, std::size_t bytes) { backend.read(packed.data() + at, static_cast<const char*>(request.send) + from, bytes); });
  } catch (const Error& e) {
    failure = e;
  }
  check_mpi(request.sum_exactly(packed.data(), packed.size() / element), "MPI_Allreduce");
  if (failure) throw Error(*failure);
  each([&](std::size_t to, std::size_t at, std::size_t bytes) { backend.write(static_cast<char*>(request.receive) + to, packed.data() + at, bytes); });
}

bool Session::allreduce(const AllreduceRequest& request, Pass* why) {
  const auto begin = Clock::now();
  const FloatEnvironment environment;
  const Settings& settings = runtime_.settings();
  const Layout layout = find_layout(request);
  std::vector<const Codec*> codecs;
  if (!choose(layout, codecs, why)) return false;
  if (!layout.known() && calls_.refutations() > 0 && !told_unknown_) {
    told_unknown_ = true;
    if (rank_ == 0)
      log(LogLevel::info, "the calls on a communicator stopped repeating; until they repeat again their tensors are unknown and have no residuals");
  }

  // One collective per codec; the other codecs' segments are gaps in it.
  struct Part {
    Layout layout;
    CollectiveCall call{};
    Choice choice;
    Hierarchy hierarchy{};
    // Whether its sums are encoded by owners that keep what that loses, on this rank.
    bool owner_memory(const Codec& codec) const {
      if (call.hierarchy) return call.hierarchy->leaders && entry_of(call.hierarchy->inner).owner_memory(codec);
      return entry_of(call.algorithm).owner_memory(codec);
    }
    bool encodes() const { return !call.hierarchy || call.hierarchy->leaders; }
  };
  std::vector<std::unique_ptr<Part>> parts;
  for (const Codec* codec : codecs) {
    if (!codec || std::any_of(parts.begin(), parts.end(), [&](const auto& p) { return p->call.codec == codec; })) continue;
    Part& part = *parts.emplace_back(std::make_unique<Part>());
    part.layout = layout;
    for (std::size_t s = 0; s < codecs.size(); ++s)
      if (codecs[s] != codec) part.layout.segments[s].use = Segment::Use::skip;
    CollectiveCall& call = part.call;
    call.count = request.count;
    call.codec = codec;
    call.layout = &part.layout;
    call.dtype = request.dtype;
    call.checksum = settings.checksum;
  }

  const std::size_t element = size_of(request.dtype);
  MpiTransport transport(comm_, rank_, size_);
  const PointerHome from = home_of(request.send), to = home_of(request.receive);
  const bool on_device = from.on_device() || to.on_device();
  const DevicePlugin* const plugin = on_device ? device_plugin() : nullptr;
  double predicted = 0, plain = 0;
  for (const auto& part : parts) {
    CollectiveCall& call = part->call;
    std::uint64_t elements = 0;
    for (const Segment& segment : part->layout.segments) elements += segment.use == Segment::Use::skip ? 0 : segment.count;
    try {
      part->choice = chooser_.choose(
          transport, runtime_.workers(), {call.codec, elements, settings.chunk, elements * element},
          [&](float* buffer, std::uint64_t count) { sum_plain(comm_, buffer, count); },
          [&] {
            if (!from.on_device()) return sample_of(request, part->layout, nullptr);
            if (!plugin) throw Error(ErrorCode::device_failed, "no CUDA plugin");
            plugin->settle(from.device_index, request.settle_all);
            return sample_of(request, part->layout, &plugin->memory(from.device_index));
          });
    } catch (const Error& e) {  // of memory for measuring all ranks say so alike, and nothing of the call has been sent
      if (e.code() != ErrorCode::out_of_memory) throw;
      *why = Pass::memory;
      return false;
    }
    call.algorithm = part->choice.algorithm;
    const bool nodes = call.algorithm == Algorithm::hierarchical;
    if (nodes) {
      part->hierarchy = hierarchy_;
      part->hierarchy.inner = part->choice.inner;
      call.hierarchy = &part->hierarchy;
    }
    call.chunk = chunk_elements(settings.chunk, *call.codec, nodes ? hierarchy_.nodes : size_, nodes ? part->choice.inner : call.algorithm);
    predicted += part->choice.predicted_s;
    plain += part->choice.plain_s;
  }
  if (predicted > 0 && predicted >= plain) {
    *why = Pass::slower;
    return false;
  }
  for (const auto& part : parts) part->call.sequence = sequence_++;

  // From here on this rank may not decide alone: what it cannot do becomes a flag in its headers. Where its values are changes no byte of
  // what it sends.
  std::uint8_t flags = 0;
  Backend* backend = &host_;
  AllreduceRequest here = request;  // with the buffers that the algorithms see
  std::string through_host;         // why values in device memory are copied to the host's
  struct Settled {
    Backend*& backend;
    ~Settled() {
      try {
        backend->settle();
      } catch (const std::exception&) {  // known where it matters
      }
    }
  } const settled{backend};
  Arena* arena = nullptr;
  float* staging = nullptr;
  std::span<char> packed;  // of the tensors that are summed exactly; had now, because later there is no way back
  std::size_t excluded = 0;
  for (std::size_t s = 0; s < codecs.size(); ++s)
    if (!codecs[s] && layout.segments[s].use == Segment::Use::sum) excluded += layout.segments[s].count * element;
  try {
    Device* place = nullptr;
    if (on_device) {
      if (!plugin) throw Error(ErrorCode::device_failed, "the buffers are in device memory, which needs the CUDA plugin");
      const int index = from.on_device() ? from.device_index : to.device_index;
      place = &device(*plugin, index);
      place->packed.reserve(excluded + request.count * element + kPayloadAlign);
      if (from.on_device() != to.on_device() || (to.on_device() && from.device_index != to.device_index))
        through_host = "its buffers are in different memory";
      for (const auto& part : parts)
        if (const auto& entry = entry_of(part->call.algorithm); !entry.any_backend)
          through_host = std::string("the algorithm ") + entry.name + " runs on the host";
        else if (!place->backend->runs(*part->call.codec))
          through_host = std::string("the codec ") + part->call.codec->traits().name + " has no kernels";
      if (through_host.empty()) {
        backend = place->backend.get();
        backend->enter(request.settle_all);
      } else {
        plugin->settle(index, request.settle_all);
        auto* const copy = place->packed.take(request.count * element);
        if (from.on_device()) plugin->memory(from.device_index).read(copy, request.send, request.count * element), here.send = copy;
        if (to.on_device()) here.receive = copy;
      }
    }
    const bool direct = backend != &host_;

    std::vector<Group> groups;
    for (std::size_t s = 0; s < codecs.size(); ++s)
      if (codecs[s]) groups.push_back({layout.segments[s].offset, layout.segments[s].count});
    std::vector<double> largest(groups.size());
    backend->magnitudes(request.dtype, here.send, groups, largest.data());
    bool all_zero = true;
    for (std::size_t s = 0, g = 0; s < codecs.size(); ++s) {
      if (!codecs[s]) continue;
      const double top = largest[g++];
      all_zero = all_zero && top == 0;
      const bool too_small = request.dtype == Dtype::f64 && top > 0 && top < 0x1p-100;
      const auto& part = *std::find_if(parts.begin(), parts.end(), [&](const auto& p) { return p->call.codec == codecs[s]; });
      // Where sums are encoded they must stay in range, too, however the values are rounded first.
      const double room = entry_of(part->call.algorithm).sums_encoded ? (1 - 0x1p-9) / size_ : 1;
      if (!(top <= room * static_cast<double>(codecs[s]->traits().max_magnitude)) || too_small) flags |= kFlagExact;
    }

    const std::uint64_t staging_bytes = request.dtype == Dtype::f32 ? 0 : Arena::padded(request.count * sizeof(float));
    std::uint64_t bytes = direct ? 0 : staging_bytes + Arena::padded(excluded), value_bytes = direct ? staging_bytes : 0;
    for (const auto& part : parts) {
      CollectiveCall& call = part->call;
      if (direct) call.backend = backend, call.values = &place->values;
      // A rank that joined early (hvd.join) gives zeros in place of tensors; its residuals stay where they are.
      const bool absent = layout.source == Layout::Source::negotiated && all_zero;
      if (call.codec->memory().kept() && settings.error_feedback && (!absent || call.hierarchy) && part->encodes())
        for (const Segment& segment : part->layout.segments)
          call.residuals.push_back(segment.use == Segment::Use::skip
                                       ? nullptr
                                       : residuals_.find(segment.key, call.codec->memory_elements(segment.count), backend->memory()));
      // As long as the tensor, though a rank owns a share of it: shares move when tensors are merged otherwise. Untouched pages cost nothing.
      if (layout.known() && settings.error_feedback && part->owner_memory(*call.codec))
        for (const Segment& segment : part->layout.segments)
          call.owner_residuals.push_back(segment.use == Segment::Use::skip ? nullptr
                                                                           : residuals_.find(segment.key + kOwnerSuffix, segment.count + call.codec->state_elements(segment.count), backend->memory()));
      bytes += arena_bytes(call, size_);
      if (!direct) continue;
      value_bytes += crimp::value_bytes(call);
      Cut cut;
      for (std::uint64_t i = 0; i < Pipeline::chunks_of(call) && (i == 0 || part->layout.segments.size() > 1); ++i) {
        cut.make(call, {}, 0, Pipeline::chunk_begin(call, i), Pipeline::chunk_end(call, i));
        backend->prepare(*call.codec, cut.shape, size_);
      }
    }
    Arena& bodies = direct ? place->staging : arena_;
    bodies.reserve(bytes);
    if (direct) {
      place->values.reserve(value_bytes);
      backend->prepare(bodies);
    }
    if (staging_bytes) staging = reinterpret_cast<float*>((direct ? place->values : arena_).take(staging_bytes));
    if (excluded) packed = {reinterpret_cast<char*>((direct ? place->packed : arena_).take(excluded)), excluded};
    if (staging && !flags) backend->widen(request.dtype, here.send, staging, request.count);
    arena = &bodies;
  } catch (const std::exception& e) {
    flags |= kFlagNoMemory;
    for (const auto& part : parts) part->call.residuals.clear(), part->call.owner_residuals.clear();  // they may be fewer than the segments
    log(LogLevel::warn, std::string(e.what()) + "; this call goes through MPI on all ranks");
  }

  std::optional<Error> failure;
  for (const auto& part : parts) {
    CollectiveCall& call = part->call;
    call.flags = flags;
    call.in = staging ? staging : static_cast<const float*>(here.send);
    call.out = staging ? staging : static_cast<float*>(here.receive);
    const auto start = part == parts.front() ? begin : Clock::now();
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
    std::uint64_t elements = 0;
    for (const Segment& segment : part->layout.segments) elements += segment.use == Segment::Use::skip ? 0 : segment.count;
    runtime_.report.compressed({call.codec->spec(), name_of(layout.source), entry_of(call.algorithm).name, part->choice.why,
                                part->choice.predicted_s, part->choice.plain_s, elements * element, result.sent_bytes, result.received_bytes,
                                result.encode_s, result.wire_s, result.decode_s, seconds(Clock::now() - start)});
  }
  const auto attempt = [&](auto&& work) {
    try {
      work();
    } catch (const Error& e) {
      if (e.code() == ErrorCode::transport_failed) throw;
      if (!failure) failure = e;
    }
  };
  if (staging && !failure)
    attempt([&] {
      for (std::size_t s = 0; s < codecs.size(); ++s)
        if (codecs[s])
          backend->narrow(request.dtype, staging + layout.segments[s].offset, static_cast<char*>(here.receive) + layout.segments[s].offset * element,
                          layout.segments[s].count);
    });
  attempt([&] { backend->settle(); });
  attempt([&] { sum_excluded(here, layout, codecs, *backend, packed); });
  if (on_device) {
    runtime_.report.on_device(through_host);
    if (here.receive != request.receive && !failure)
      attempt([&] {
        Allocator& memory = plugin->memory(to.device_index);
        for (std::size_t s = 0, end = 0; s < layout.segments.size(); s = end) {
          // Neighbours in one copy; what is skipped is not written.
          for (end = s; end < layout.segments.size() && layout.segments[end].use == Segment::Use::sum;) ++end;
          if (end == s) {
            ++end;
            continue;
          }
          const std::uint64_t first = layout.segments[s].offset * element;
          const std::uint64_t last = (layout.segments[end - 1].offset + layout.segments[end - 1].count) * element;
          memory.write(static_cast<char*>(request.receive) + first, static_cast<const char*>(here.receive) + first, last - first);
        }
      });
  }
  if (failure) throw Error(*failure);
  return true;
}

}  // namespace crimp
