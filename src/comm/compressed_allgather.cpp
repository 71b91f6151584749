#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "backend/workers.hpp"
#include "core/fault.hpp"
#include "core/trace.hpp"
#include "crimp/collective.hpp"
#include "crimp/payload.hpp"

namespace crimp {
namespace {

// While chunk i is on the wire, i+1 is encoded and i-1 decoded; headers travel one step ahead of bodies.
constexpr std::size_t kEncodeSlots = 3, kReceiveSlots = 2;

std::uint64_t chunks_of(const CollectiveCall& call) { return std::max<std::uint64_t>(1, div_up(call.count, call.chunk)); }

// Cuts chunk `index`: its groups, and their memories before redirection.
void cut(const CollectiveCall& call, std::uint64_t index, Shape& shape, std::vector<Feedback>& feedback) {
  shape.clear();
  feedback.clear();
  const std::uint64_t begin = index * call.chunk, end = std::min(call.count, begin + call.chunk);
  const auto& segments = call.layout->segments;
  auto s = static_cast<std::size_t>(
      std::upper_bound(segments.begin(), segments.end(), begin, [](std::uint64_t at, const Segment& x) { return at < x.offset; }) -
      segments.begin());
  for (s -= s > 0; s < segments.size() && segments[s].offset < end; ++s) {
    const std::uint64_t from = std::max(begin, segments[s].offset), to = std::min(end, segments[s].offset + segments[s].count);
    if (segments[s].use == Segment::Use::skip) {
      shape.add_gap(to - from);
      continue;
    }
    if (from >= to) continue;
    shape.add_group(to - from);
    float* const memory = call.residuals.empty() ? nullptr : call.residuals[s];
    float* const here = memory ? memory + (from - segments[s].offset) : nullptr;
    float* const momentum = memory && call.codec->memory().planes() == 2 ? here + segments[s].count : nullptr;
    feedback.push_back({here, here, momentum, momentum});
  }
}

class Pipeline {
 public:
  Pipeline(Transport& transport, Arena* arena, Workers& workers, const CollectiveCall& call, Trace* trace)
      : transport_(transport), workers_(workers), call_(call), trace_(trace), chunks_(chunks_of(call)),
        ranks_(static_cast<std::size_t>(transport.size())), layout_(static_cast<std::uint32_t>(call.layout->digest())) {
    for (auto& slot : send_) slot.headers.resize(ranks_);
    if (!arena) return;
    for (auto& slot : send_) slot.body = reinterpret_cast<std::uint8_t*>(arena->take(body_bound()));
    for (auto& slot : receive_) slot.bodies = reinterpret_cast<std::uint8_t*>(arena->take(ranks_ * body_bound()));
    if (!call.residuals.empty())
      for (auto& spare : spare_memory_) spare = reinterpret_cast<float*>(arena->take(spare_bytes(call)));
    scratch_ = reinterpret_cast<float*>(arena->take(scratch_bytes(call)));
  }

  static std::uint64_t body_bound(const CollectiveCall& call) {
    // Groups end where segments do, so a chunk may have as many groups as segments begin in it, and each may cost a partial piece.
    Shape shape;
    std::vector<Feedback> feedback;
    std::uint64_t bound = 0;
    // All chunks but those with segment borders have the same shape; cutting each is cheap next to encoding it.
    for (std::uint64_t i = 0; i < chunks_of(call); ++i) {
      cut(call, i, shape, feedback);
      bound = std::max<std::uint64_t>(bound, shape.body_bound(*call.codec));
      if (call.layout->segments.size() == 1 && i == 0) break;  // the first is the largest
    }
    return bound;
  }
  static std::uint64_t spare_bytes(const CollectiveCall& call) {
    return std::min(call.count, call.chunk) * sizeof(float) * static_cast<std::uint64_t>(std::max(1, call.codec->memory().planes()));
  }
  static std::uint64_t scratch_bytes(const CollectiveCall& call) {
    return scratch_elements(*call.codec, std::min(call.count, call.chunk), !call.residuals.empty()) * sizeof(float);
  }

  CollectiveResult run() {
    encode(0);
    start_headers(0);
    for (std::uint64_t i = 0; i < chunks_; ++i) {
      if (i + 1 < chunks_) encode(i + 1);
      if (!accept_headers(i)) return result_;
      start_bodies(i);
      if (i + 1 < chunks_) start_headers(i + 1);
      if (i > 0) decode(i - 1);
    }
    decode(chunks_ - 1);
    return result_;
  }

 private:
  struct SendSlot {
    Header mine;
    std::vector<Header> headers;  // of all ranks
    Transport::Ticket ticket = 0;
    Shape shape;
    std::vector<Feedback> feedback;
    std::uint8_t* body = nullptr;
  };
  struct ReceiveSlot {
    std::uint8_t* bodies = nullptr;
    std::vector<std::uint64_t> bytes, offsets;
    std::vector<BodyView> views;
    Transport::Ticket ticket = 0;
  };

  std::uint64_t body_bound() const {
    if (!body_bound_) body_bound_ = body_bound(call_);
    return body_bound_;
  }
  Place place(std::uint64_t chunk) const { return {chunk * call_.chunk, call_.sequence, static_cast<std::uint32_t>(transport_.rank())}; }
  SendSlot& send(std::uint64_t chunk) { return send_[chunk % kEncodeSlots]; }
  ReceiveSlot& receive(std::uint64_t chunk) { return receive_[chunk % kReceiveSlots]; }
  Progress progress() {
    return [this] { transport_.progress(); };
  }
  double span(const char* name, std::uint64_t chunk, Clock::time_point begin) {
    const auto end = Clock::now();
    if (trace_) trace_->add(name, call_.sequence, static_cast<std::uint32_t>(chunk), begin, end);
    return seconds(end - begin);
  }

  void encode(std::uint64_t chunk) {
    const auto begin = Clock::now();
    SendSlot& slot = send(chunk);
    cut(call_, chunk, slot.shape, slot.feedback);
    slot.mine = {};
    slot.mine.codec = call_.codec->traits().wire_id;
    slot.mine.dtype = static_cast<std::uint8_t>(call_.dtype);
    slot.mine.flags = call_.flags;
    slot.mine.count = slot.shape.count();
    slot.mine.call = call_.sequence;
    slot.mine.chunk = static_cast<std::uint32_t>(chunk);
    slot.mine.parameters = call_.codec->parameter_word();
    slot.mine.layout = layout_;
    slot.mine.wire_us = static_cast<std::uint32_t>(1e6 * result_.wire_s);
    if (!call_.flags) {
      if (!call_.residuals.empty() && !committed_) {
        // Until every rank is known to compress this call, new residuals wait aside: on the way through MPI none may change.
        for (std::size_t g = 0; g < slot.feedback.size(); ++g) {
          Feedback& memory = slot.feedback[g];
          if (!memory.out) continue;
          memory.out = spare_memory_[chunk] + slot.shape.groups()[g].offset;
          if (memory.momentum_out) memory.momentum_out = memory.out + slot.shape.count();
        }
      }
      slot.mine.body_bytes = encode_body(*call_.codec, slot.shape, call_.in + chunk * call_.chunk, slot.feedback, place(chunk), slot.body,
                                         scratch_, workers_, progress());
      if (call_.checksum) slot.mine.body_hash = XXH3_64bits(slot.body, slot.mine.body_bytes);
      if (fault::fires("corrupt_body")) slot.body[slot.mine.body_bytes / 2] ^= 0x55;
    }
    if (fault::fires("corrupt_header")) slot.mine.count ^= 1;
    const double took = span("encode", chunk, begin);
    slot.mine.encode_us = static_cast<std::uint32_t>(1e6 * took);
    result_.encode_s += took;
  }

  void start_headers(std::uint64_t chunk) {
    SendSlot& slot = send(chunk);
    slot.ticket = transport_.start_allgather(&slot.mine, slot.headers.data(), sizeof(Header));
    result_.sent_bytes += sizeof(Header);
    result_.received_bytes += (ranks_ - 1) * sizeof(Header);
  }

  // False: some rank asks for MPI, or (thrown) the ranks are not in the same call. All ranks see the same headers and decide alike.
  bool accept_headers(std::uint64_t chunk) {
    SendSlot& slot = send(chunk);
    const auto begin = Clock::now();
    transport_.wait(slot.ticket);
    result_.wire_s += span("wire", chunk, begin);
    const Header& first = slot.headers[0];
    for (std::size_t r = 0; r < ranks_; ++r) {
      const std::string what = disagreement(first, slot.headers[r]);
      if (what.empty()) {
        result_.flags |= slot.headers[r].flags;
        continue;
      }
      if (chunk > 0) transport_.wait(receive(chunk - 1).ticket);  // nothing stays under way in buffers that the caller may free
      throw Error(ErrorCode::call_differs, "rank " + std::to_string(r) + " and rank 0 are not in the same MPI_Allreduce: on rank " +
                                                 std::to_string(r) + " " + what + " (0's)");
    }
    if (result_.flags) return false;
    if (!committed_) {
      committed_ = true;
      commit(0);
      if (chunks_ > 1) commit(1);
    }
    return true;
  }

  void commit(std::uint64_t chunk) {
    if (call_.residuals.empty()) return;
    SendSlot& slot = send(chunk);
    for (std::size_t g = 0; g < slot.feedback.size(); ++g) {
      const Feedback& memory = slot.feedback[g];
      const std::size_t bytes = slot.shape.groups()[g].count * sizeof(float);
      if (memory.out) std::memcpy(const_cast<float*>(memory.in), memory.out, bytes);
      if (memory.momentum_out) std::memcpy(const_cast<float*>(memory.momentum_in), memory.momentum_out, bytes);
    }
  }

  void start_bodies(std::uint64_t chunk) {
    SendSlot& slot = send(chunk);
    ReceiveSlot& to = receive(chunk);
    to.bytes.resize(ranks_);
    to.offsets.resize(ranks_);
    for (std::size_t r = 0; r < ranks_; ++r) {
      to.bytes[r] = std::min(slot.headers[r].body_bytes, body_bound());
      to.offsets[r] = r * body_bound();
      if (r != static_cast<std::size_t>(transport_.rank())) result_.received_bytes += to.bytes[r];
    }
    result_.sent_bytes += slot.mine.body_bytes;
    if (call_.codec->traits().fixed_size) {
      for (std::size_t r = 0; r < ranks_; ++r) to.offsets[r] = r * slot.mine.body_bytes;
      to.ticket = transport_.start_allgather(slot.body, to.bodies, slot.mine.body_bytes);
    } else {
      to.ticket = transport_.start_allgatherv(slot.body, to.bytes, to.offsets, to.bodies);
    }
  }

  void decode(std::uint64_t chunk) {
    ReceiveSlot& from = receive(chunk);
    SendSlot& slot = send(chunk);
    auto begin = Clock::now();
    transport_.wait(from.ticket);
    result_.wire_s += span("wire", chunk, begin);
    begin = Clock::now();
    if (fault::fires("corrupt_wire")) from.bodies[from.offsets[0] + from.bytes[0] / 2] ^= 0x55;
    from.views.resize(ranks_);
    bool good = true;
    for (std::size_t r = 0; r < ranks_; ++r) {
      const std::span body(from.bodies + from.offsets[r], from.bytes[r]);
      std::string what;
      if (slot.headers[r].body_hash && XXH3_64bits(body.data(), body.size()) != slot.headers[r].body_hash) what = "its checksum is wrong";
      if (what.empty()) what = from.views[r].open(*call_.codec, slot.shape, body);
      if (!what.empty()) good = false, blame(r, chunk, what);
    }
    // With a bad payload the exchanges go on, so that no rank waits for this one; the error is raised at the end of the call.
    if (good) {
      const int bad = decode_add(*call_.codec, slot.shape, from.views, place(chunk), call_.out + chunk * call_.chunk, false, workers_, progress());
      if (bad >= 0) blame(static_cast<std::size_t>(bad), chunk, "a piece of it is malformed");
    }
    result_.decode_s += span("decode", chunk, begin);
  }

  void blame(std::size_t rank, std::uint64_t chunk, const std::string& what) {
    if (result_.error) return;
    result_.error.emplace(ErrorCode::payload_corrupt, "the payload that rank " + std::to_string(transport_.rank()) + " received from rank " +
                                                          std::to_string(rank) + " (call " + std::to_string(call_.sequence) + ", chunk " +
                                                          std::to_string(chunk) + ") is corrupt: " + what +
                                                          "; the result of this call is undefined on this rank");
  }

  Transport& transport_;
  Workers& workers_;
  const CollectiveCall& call_;
  Trace* trace_;
  std::uint64_t chunks_;
  std::size_t ranks_;
  std::uint32_t layout_;
  mutable std::uint64_t body_bound_ = 0;
  bool committed_ = false;
  float* spare_memory_[2] = {};
  float* scratch_ = nullptr;
  SendSlot send_[kEncodeSlots];
  ReceiveSlot receive_[kReceiveSlots];
  CollectiveResult result_;
};

}  // namespace

std::uint64_t arena_bytes(const CollectiveCall& call, int ranks) {
  const std::uint64_t body = Arena::padded(Pipeline::body_bound(call));
  const std::uint64_t spare = call.residuals.empty() ? 0 : 2 * Arena::padded(Pipeline::spare_bytes(call));
  return kEncodeSlots * body + kReceiveSlots * static_cast<std::uint64_t>(ranks) * body + spare + Arena::padded(Pipeline::scratch_bytes(call));
}

std::uint64_t chunk_elements(std::uint64_t setting, const Codec& codec, int ranks) {
  const std::uint64_t piece_bytes = 4 * codec.piece_bound(kPieceElements) + kPayloadAlign;
  const std::uint64_t pieces = kReceiveBudget / (kReceiveSlots * static_cast<std::uint64_t>(ranks) * piece_bytes);
  return std::max(kPieceElements, std::min(setting, pieces * kPieceElements));
}

CollectiveResult compressed_allgather(Transport& transport, Arena* arena, Workers& workers, const CollectiveCall& call, Trace* trace) {
  return Pipeline(transport, arena, workers, call, trace).run();
}

}  // namespace crimp
