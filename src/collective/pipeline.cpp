#include "collective/pipeline.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "core/log.hpp"
#include "core/reserve.hpp"
#include "core/trace.hpp"
#include "memory/streamed.hpp"

namespace crimp {
void BoundSlice::take(const Slice& of, const PartPlan& part, const CallBuffers& call,
                      const std::vector<float*>& memories, int arrays) {
  slice = &of;
  feedback.clear();
  insist([&] { feedback.reserve(of.segments.size()); });
  const auto& segments = part.layout->segments;
  for (std::size_t g = 0; g < of.segments.size(); ++g) {
    const std::size_t s = of.segments[g];
    const std::uint64_t first = of.begin + of.partition.groups()[g].offset - segments[s].offset;
    feedback.push_back(
        feedback_of(*part.codec, memories.empty() ? nullptr : memories[s], arrays, segments[s].count, first));
    // Of shares several parts of a tensor may begin within one piece of it, whose state is one: each is selected anew.
    if (part.shares) feedback.back().state_in = feedback.back().state_out = nullptr;
    feedback.back().turn = call.turns.empty() ? call.sequence : call.turns[s];
  }
}

Pipeline::Pipeline(Transport& transport, Workers& workers, const RoutePlan& route, const CallBuffers& call,
                   Trace* trace)
    : transport_(transport), workers_(workers), host_(workers), backend_(call.backend ? *call.backend : host_),
      route_(route), part_(route.part),
      streamed_(!call.read_again && outgrows_caches(route.part.shares ? route.part.shares->of(transport.rank()).count()
                                                                      : route.part.count)),
      call_(call), trace_(trace), ranks_(static_cast<std::size_t>(transport.size())),
      layout_(static_cast<std::uint32_t>(route.part.layout->digest() ^
                                         (route.part.shares ? route.part.shares->digest() : 0))) {
  under_way_.reserve(Transport::kMostUnderWay);
}

void Pipeline::begin(const ChunkedRoute& route) {
  if (!call_.residuals.empty())
    for (int i = 0; i < 2; ++i) {
      spare_memory_[i] = reinterpret_cast<float*>(values().take(route.spare_bytes()));
      spare_states_[i] = spare_memory_[i] + route.spare_states();
    }
  scratch_ = reinterpret_cast<float*>(values().take(route.scratch_bytes()));
}

double Pipeline::span(const char* name, std::uint64_t chunk, Clock::time_point begin) {
  const auto end = Clock::now();
  if (trace_) trace_->add(name, call_.sequence, static_cast<std::uint32_t>(chunk), begin, end);
  return seconds(end - begin);
}

void Pipeline::bind(BoundSlice& bound, const Slice& slice, std::uint64_t chunk, std::uint64_t place) {
  bound.take(slice, part_, call_, call_.residuals, codec().feedback().arrays());
  if (committed_ || call_.flags || call_.residuals.empty()) return;
  // Until every rank is known to compress this call, new residuals wait aside: on the way through MPI none may change.
  for (std::size_t g = 0; g < bound.feedback.size(); ++g) {
    FeedbackView& memory = bound.feedback[g];
    if (!memory.out) continue;
    if (memory.state_out)
      memory.state_out = std::exchange(spare_states_[chunk], spare_states_[chunk] + Codec::kStateFloats);
    memory.out = spare_memory_[chunk] + place + slice.partition.groups()[g].offset;
    if (memory.momentum_out) memory.momentum_out = memory.out + std::min(part_.count, route_.chunk);
  }
}

Header Pipeline::header(std::uint64_t chunk, std::uint64_t count, std::uint8_t stage) const {
  Header h;
  h.algorithm = route_.algorithm;
  h.stage = stage;
  h.codec = codec().traits().wire_id;
  h.dtype = static_cast<std::uint8_t>(part_.dtype);
  h.flags = call_.flags;
  h.count = count;
  h.call = call_.sequence;
  h.chunk = static_cast<std::uint32_t>(chunk);
  h.parameters = codec().parameter_word();
  h.layout = layout_;
  h.wire_us = static_cast<std::uint32_t>(1e6 * result_.wire_s);
  if (stage == 0) h.say(call_.delay);
  return h;
}

void Pipeline::add(Encoding& encoding, Header& header, const BoundSlice& bound, ConstValues values,
                   std::uint32_t encoder, std::uint8_t* body) {
  encoding.headers.push_back(&header);
  if (!header.flags)
    encoding.jobs.push_back({codec(),
                             bound.partition(),
                             values,
                             bound.feedback,
                             {bound.begin(), call_.sequence, encoder},
                             body,
                             scratch_,
                             &header.body_bytes});
  if (!backend_.asynchronous()) start_encode(encoding), finish_encode(encoding);
}

void Pipeline::start_encode(Encoding& encoding) {
  if (encoding.jobs.empty()) return;
  try {
    encoding.ticket = backend_.start_encode(encoding.jobs, mover());
  } catch (const std::exception& e) {
    failed(encoding, e);
  }
}

void Pipeline::finish_encode(Encoding& encoding) {
  if (encoding.ticket) {
    try {
      backend_.finish_encode(*encoding.ticket, mover());
      auto job = encoding.jobs.begin();
      for (Header* const h : encoding.headers)
        if (backend_.readable_bodies() && job != encoding.jobs.end() && job->bytes == &h->body_bytes)
          seal(*h, {(job++)->body, h->body_bytes}, part_.checksum);
    } catch (const std::exception& e) {
      failed(encoding, e);
    }
  }
  for (Header* const h : encoding.headers) may_corrupt_header(*h);
  encoding.headers.clear();
  encoding.jobs.clear();
  encoding.ticket.reset();
}

void Pipeline::note_encode(std::span<Header> mine, std::uint64_t chunk, Clock::time_point begin) {
  const double took = span("encode", chunk, begin);
  for (Header& h : mine) h.encode_us += static_cast<std::uint32_t>(1e6 * took);
  result_.encode_s += took;
}

void Pipeline::add(Decoding& decoding, const BoundSlice& bound, std::span<const BodyView> views, std::uint64_t chunk,
                   Values to, int voters, std::size_t from) {
  auto& sum = decoding.sums.emplace_back(Decoding::Sum{chunk, from});
  decoding.jobs.push_back({codec(),
                           bound.partition(),
                           views,
                           {bound.begin(), call_.sequence, 0},
                           to,
                           false,
                           voters,
                           &sum.bad,
                           !decoding.read_again && streamed_});
  if (!backend_.asynchronous()) start_decode(decoding);
}

void Pipeline::start_decode(Decoding& decoding) {
  if (decoding.jobs.empty()) return;
  try {
    decoding.ticket = backend_.start_decode(decoding.jobs, mover());
  } catch (const std::exception& e) {
    failed(e);
  }
  decoding.jobs.clear();
}

bool Pipeline::finish_decode(Decoding& decoding) {
  bool good = decoding.ticket.has_value();
  if (good) try {
      backend_.finish_decode(*decoding.ticket, mover());
      for (const Decoding::Sum& sum : decoding.sums) {
        if (sum.bad >= 0) blame(sum.from + static_cast<std::size_t>(sum.bad), sum.chunk, "a piece of it is malformed");
        good = good && sum.bad == Decoding::kNone;
      }
    } catch (const std::exception& e) {
      failed(e);
      good = false;
    }
  decoding.sums.clear();
  decoding.ticket.reset();
  return good;
}

void Pipeline::failed(Encoding& encoding, const std::exception& e) {
  Header* first = nullptr;  // says it for all
  for (const EncodeJob& job : encoding.jobs)
    for (Header* const h : encoding.headers) {
      if (job.bytes != &h->body_bytes) continue;
      if (!first) failed(*(first = h), e);
      h->flags |= first->flags;
      h->body_bytes = h->body_hash = 0;
    }
  encoding.jobs.clear();
  encoding.ticket.reset();
}

void Pipeline::failed(const std::exception& e) {
  const auto* const known = dynamic_cast<const Error*>(&e);
  if (!result_.error)
    insist([&] {
      // What else is thrown here is std::bad_alloc: devices fail with an Error.
      result_.error.emplace(known ? known->code() : ErrorCode::out_of_memory,
                            std::string(e.what()) + "; the result of this call is undefined on this rank");
    });
}

// Of the first chunk there is a way back, and all ranks take it: to MPI, or where another part of the call has been
// summed to an error. Later the others learn that a body is missing.
void Pipeline::failed(Header& header, const std::exception& e) {
  if (header.stage == 0 && header.chunk == 0) {
    header.flags |= kFlagNoMemory;
    static std::atomic<bool> told{false};
    if (!call_.first) {
      failed(e);
    } else if (!told.exchange(true)) {
      logged("a call that goes through MPI", [&] {
        log(LogLevel::warn,
            std::string(e.what()) + "; this call, and others for which that is so, go through MPI on all ranks");
      });
    }
  } else {
    header.flags |= kFlagCorrupt;
    failed(e);
  }
  header.body_bytes = header.body_hash = 0;
}

Error Pipeline::differs(const Header& got, std::size_t from, const std::string& what) const {
  const char* const call = name_of(part_.shares ? part_.shares->collective : Collective::allreduce);
  // One exchange of a call's frames is read elsewhere than it was written where they are not all as long.
  if (got.magic != kWireMagic)
    return {ErrorCode::call_differs, transport_.among() + "the ranks are not in the same " + call +
                                         " (or the one like it that does not block): what came as rank " +
                                         std::to_string(from) +
                                         "'s has no Crimp header. Counts or types differ between the ranks, or a "
                                         "rank has no Crimp"};
  return {ErrorCode::call_differs, transport_.among() + not_in_one(call, from, what)};
}

bool Pipeline::accept(std::span<const Header> headers) {
  for (std::size_t r = 0; r < headers.size(); ++r) {
    const std::string what = insist([&] { return disagreement(headers[0], headers[r], kOnFirst); });
    if (what.empty()) {
      if (headers[r].stage != 0) continue;
      result_.flags |= static_cast<std::uint8_t>(headers[r].flags & ~kFlagCorrupt);
      result_.delays.add(headers[r].delay());
      continue;
    }
    for (const UnderWay& exchange : under_way_)
      transport_.wait(exchange.ticket);  // nothing stays under way in buffers that the caller may free
    throw insist([&] { return differs(headers[r], r, what); });
  }
  if (result_.flags) return false;
  committed_ = true;
  return true;
}

namespace {

// Copies that are made together. None is joined to its neighbour: each tensor's memory is an allocation of its own, and
// a copy beyond the end of one is none that a device has to take.
class Copies {
 public:
  explicit Copies(Backend& backend) : backend_(backend) {}
  void add(const float* there, const float* from, std::uint64_t count) {
    if (used_ == all_.size()) flush();
    all_[used_++] = {const_cast<float*>(there), from, count};
  }
  void flush() {
    if (const std::size_t some = std::exchange(used_, 0)) backend_.copy_all({all_.data(), some});
  }

 private:
  Backend& backend_;
  std::array<FloatCopy, kCopiesAtOnce> all_;  // behind acceptance nothing may need memory
  std::size_t used_ = 0;
};

}  // namespace

void Pipeline::commit(std::span<const BoundSlice> slices, std::span<const Header> mine) {
  if (std::any_of(mine.begin(), mine.end(), [](const Header& h) { return h.flags & kFlagCorrupt; })) return;
  try {
    Copies copies(backend_);
    for (const BoundSlice& bound : slices)
      for (std::size_t g = 0; g < bound.feedback.size(); ++g) {
        const FeedbackView& memory = bound.feedback[g];
        const std::uint64_t count = bound.partition().groups()[g].count;
        if (memory.out) copies.add(memory.in, memory.out, count);
        if (memory.momentum_out) copies.add(memory.momentum_in, memory.momentum_out, count);
        if (memory.state_out) copies.add(memory.state_in, memory.state_out, Codec::kStateFloats);
      }
    copies.flush();
  } catch (const std::exception& e) {
    failed(e);
  }
}

void Pipeline::place(std::span<const std::uint64_t> bytes, std::span<const std::uint64_t> bounds,
                     std::span<std::uint64_t> offsets) const {
  std::uint64_t at = 0;
  for (std::size_t r = 0; r < bytes.size(); at += bytes[r++]) offsets[r] = backend_.asynchronous() ? at : bounds[r];
}

Transport::Ticket Pipeline::under_way(Transport::Ticket ticket) {
  // As many as the transport has have room.
  under_way_.push_back({ticket, trace_ ? Clock::now() : Clock::time_point()});
  return ticket;
}

void Pipeline::wait(Transport::Ticket ticket, std::uint64_t chunk) {
  const auto begin = Clock::now();
  Clock::time_point since = begin;
  std::erase_if(under_way_, [&](const UnderWay& exchange) {
    if (exchange.ticket != ticket) return false;
    since = exchange.since;
    return true;
  });
  transport_.wait(ticket);
  result_.wire_s += span("wire", chunk, begin);
  if (trace_) span("under way", chunk, since);
}

bool Pipeline::open(BodyView& view, const Header& header, const BoundSlice& bound, std::span<const std::uint8_t> body,
                    std::size_t from, std::uint64_t chunk) {
  std::string what;
  try {
    what = insist([&] {
      std::string found = defect(header, body, backend_.readable_bodies());
      return found.empty() ? backend_.open(view, codec(), bound.partition(), body) : found;
    });
  } catch (const std::exception& e) {
    failed(e);
    return false;
  }
  return usable(what, from, chunk);
}

bool Pipeline::usable(const std::string& defect, std::size_t from, std::uint64_t chunk) {
  if (!defect.empty()) blame(from, chunk, defect);
  return defect.empty();
}

void Pipeline::blame(std::size_t from, std::uint64_t chunk, const std::string& what) {
  if (result_.error) return;
  insist([&] {
    result_.error.emplace(ErrorCode::payload_corrupt, "the payload that rank " + std::to_string(transport_.rank()) +
                                                          " received from rank " + std::to_string(from) + " (call " +
                                                          std::to_string(call_.sequence) + ", chunk " +
                                                          std::to_string(chunk) + ") is corrupt: " + what +
                                                          "; the result of this call is undefined on this rank");
  });
}

}  // namespace crimp
