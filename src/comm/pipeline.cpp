#include "comm/pipeline.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "core/fault.hpp"

namespace crimp {
namespace {

std::uint64_t spare_bytes(const CollectiveCall& call) {
  return std::min(call.count, call.chunk) * sizeof(float) * static_cast<std::uint64_t>(std::max(1, call.codec->memory().planes()));
}
std::uint64_t scratch_bytes(const CollectiveCall& call) {
  const bool memory = !call.residuals.empty() || !call.owner_residuals.empty();
  return scratch_elements(*call.codec, std::min(call.count, call.chunk), memory) * sizeof(float);
}

}  // namespace

void Cut::make(const CollectiveCall& call, const std::vector<float*>& memories, int planes, std::uint64_t from, std::uint64_t end) {
  begin = from;
  shape.clear();
  feedback.clear();
  const auto& segments = call.layout->segments;
  auto s = static_cast<std::size_t>(
      std::upper_bound(segments.begin(), segments.end(), begin, [](std::uint64_t at, const Segment& x) { return at < x.offset; }) -
      segments.begin());
  for (s -= s > 0; s < segments.size() && segments[s].offset < end; ++s) {
    const std::uint64_t first = std::max(begin, segments[s].offset), last = std::min(end, segments[s].offset + segments[s].count);
    if (first >= last) continue;
    if (segments[s].use == Segment::Use::skip) {
      shape.add_gap(last - first);
      continue;
    }
    shape.add_group(last - first);
    float* const memory = memories.empty() ? nullptr : memories[s];
    float* const here = memory ? memory + (first - segments[s].offset) : nullptr;
    float* const momentum = memory && planes == 2 ? here + segments[s].count : nullptr;
    feedback.push_back({here, here, momentum, momentum});
  }
}

std::uint64_t Pipeline::chunks_of(const CollectiveCall& call) { return std::max<std::uint64_t>(1, div_up(call.count, call.chunk)); }

std::uint64_t Pipeline::chunk_end(const CollectiveCall& call, std::uint64_t chunk) { return std::min(call.count, (chunk + 1) * call.chunk); }

std::uint64_t Pipeline::own_bytes(const CollectiveCall& call) {
  const std::uint64_t spare = call.residuals.empty() ? 0 : 2 * Arena::padded(spare_bytes(call));
  return spare + Arena::padded(scratch_bytes(call));
}

Pipeline::Pipeline(Transport& transport, Workers& workers, const CollectiveCall& call, Trace* trace)
    : transport_(transport), workers_(workers), call_(call), trace_(trace), chunks_(chunks_of(call)),
      ranks_(static_cast<std::size_t>(transport.size())), layout_(static_cast<std::uint32_t>(call.layout->digest())) {}

void Pipeline::begin(Arena& arena) {
  if (!call_.residuals.empty())
    for (auto& spare : spare_memory_) spare = reinterpret_cast<float*>(arena.take(spare_bytes(call_)));
  scratch_ = reinterpret_cast<float*>(arena.take(scratch_bytes(call_)));
}

double Pipeline::span(const char* name, std::uint64_t chunk, Clock::time_point begin) {
  const auto end = Clock::now();
  if (trace_) trace_->add(name, call_.sequence, static_cast<std::uint32_t>(chunk), begin, end);
  return seconds(end - begin);
}

void Pipeline::cut(Cut& cut, std::uint64_t chunk, std::uint64_t begin, std::uint64_t end) {
  cut.make(call_, call_.residuals, call_.codec->memory().planes(), begin, end);
  if (committed_ || call_.flags || call_.residuals.empty()) return;
  // Until every rank is known to compress this call, new residuals wait aside: on the way through MPI none may change.
  for (std::size_t g = 0; g < cut.feedback.size(); ++g) {
    Feedback& memory = cut.feedback[g];
    if (!memory.out) continue;
    memory.out = spare_memory_[chunk] + (begin - chunk_begin(call_, chunk)) + cut.shape.groups()[g].offset;
    if (memory.momentum_out) memory.momentum_out = memory.out + std::min(call_.count, call_.chunk);
  }
}

Header Pipeline::header(std::uint64_t chunk, std::uint64_t count, std::uint8_t stage) const {
  Header h;
  h.algorithm = call_.algorithm;
  h.stage = stage;
  h.codec = call_.codec->traits().wire_id;
  h.dtype = static_cast<std::uint8_t>(call_.dtype);
  h.flags = call_.flags;
  h.count = count;
  h.call = call_.sequence;
  h.chunk = static_cast<std::uint32_t>(chunk);
  h.parameters = call_.codec->parameter_word();
  h.layout = layout_;
  h.wire_us = static_cast<std::uint32_t>(1e6 * result_.wire_s);
  return h;
}

void Pipeline::encode(Header& header, const Cut& cut, const float* values, std::uint32_t encoder, std::uint8_t* body) {
  if (!header.flags) {
    header.body_bytes = encode_body(*call_.codec, cut.shape, values, cut.feedback, {cut.begin, call_.sequence, encoder}, body, scratch_,
                                    workers_, progress());
    if (call_.checksum) header.body_hash = XXH3_64bits(body, header.body_bytes);
    if (header.body_bytes && fault::fires("corrupt_body")) body[header.body_bytes / 2] ^= 0x55;
  }
  if (fault::fires("corrupt_header")) header.count ^= 1;
}

bool Pipeline::accept(std::span<const Header> headers) {
  for (std::size_t r = 0; r < headers.size(); ++r) {
    const std::string what = disagreement(headers[0], headers[r]);
    if (what.empty()) {
      if (headers[r].stage == 0) result_.flags |= headers[r].flags;
      continue;
    }
    for (const auto ticket : under_way_) transport_.wait(ticket);  // nothing stays under way in buffers that the caller may free
    throw Error(ErrorCode::call_differs, "rank " + std::to_string(r) + " and rank 0 are not in the same MPI_Allreduce: on rank " +
                                               std::to_string(r) + " " + what + " (0's)");
  }
  if (result_.flags) return false;
  committed_ = true;
  return true;
}

void Pipeline::commit(const Cut& cut) {
  for (std::size_t g = 0; g < cut.feedback.size(); ++g) {
    const Feedback& memory = cut.feedback[g];
    const std::size_t bytes = cut.shape.groups()[g].count * sizeof(float);
    if (memory.out) std::memcpy(const_cast<float*>(memory.in), memory.out, bytes);
    if (memory.momentum_out) std::memcpy(const_cast<float*>(memory.momentum_in), memory.momentum_out, bytes);
  }
}

Transport::Ticket Pipeline::under_way(Transport::Ticket ticket) {
  under_way_.push_back(ticket);
  return ticket;
}

void Pipeline::wait(Transport::Ticket ticket, std::uint64_t chunk) {
  const auto begin = Clock::now();
  std::erase(under_way_, ticket);
  transport_.wait(ticket);
  result_.wire_s += span("wire", chunk, begin);
}

bool Pipeline::open(BodyView& view, const Header& header, const Cut& cut, std::span<const std::uint8_t> body, std::size_t from,
                    std::uint64_t chunk) {
  std::string what;
  if (header.body_hash && XXH3_64bits(body.data(), body.size()) != header.body_hash) what = "its checksum is wrong";
  if (what.empty()) what = view.open(*call_.codec, cut.shape, body);
  if (!what.empty()) blame(from, chunk, what);
  return what.empty();
}

void Pipeline::blame(std::size_t from, std::uint64_t chunk, const std::string& what) {
  if (result_.error) return;
  result_.error.emplace(ErrorCode::payload_corrupt, "the payload that rank " + std::to_string(transport_.rank()) + " received from rank " +
                                                        std::to_string(from) + " (call " + std::to_string(call_.sequence) + ", chunk " +
                                                        std::to_string(chunk) + ") is corrupt: " + what +
                                                        "; the result of this call is undefined on this rank");
}

}  // namespace crimp
