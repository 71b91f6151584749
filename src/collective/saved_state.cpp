#include "collective/saved_state.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "core/digest.hpp"
#include "core/error.hpp"

namespace crimp {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian, and written as it is in memory");

constexpr char kMagic[8] = {'C', 'R', 'I', 'M', 'P', 'S', 'T', '\x1a'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint8_t kTensor = 1, kExtents = 2;
constexpr std::uint32_t kLongestName = 65535, kLongestCodec = 4095;
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 48;
constexpr float kMostMagnitude = 0x1p120f;  // residuals and momenta add up values of 2^100

struct FileHeader {
  char magic[8];
  std::uint32_t version, flags, rank, ranks;
  std::uint64_t generation, set;
  std::uint32_t sequence, records;
  std::uint64_t bytes, digest;
};
static_assert(sizeof(FileHeader) == 64 && offsetof(FileHeader, digest) == 56);

struct Record {
  std::uint8_t type, a, owner, kind, encoding, zero[3];  // a: source; of extents whether they were given
  std::uint32_t name, codec;
  std::uint64_t count, payload;
  std::uint32_t turns, roundings;
  double learning_rate;
  std::uint64_t cols, q_cols;  // of extents; calls: in `payload`'s place there is none
};
static_assert(sizeof(Record) == 64 && offsetof(Record, count) == 16 && offsetof(Record, learning_rate) == 40);

std::uint64_t padded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }
std::uint64_t record_bytes(std::uint64_t texts, std::uint64_t payload) {
  return sizeof(Record) + padded(texts) + padded(payload) + sizeof(std::uint64_t);
}

std::uint8_t source_byte(Layout::Source source) { return source == Layout::Source::named ? 1 : 2; }

// What it is given, and a digest of it.
class Digesting {
 public:
  explicit Digesting(const PrivateDirectory::Put& put) : put_(put) {}
  void put(const void* bytes, std::size_t count) {
    digest_.add(bytes, count);
    put_(bytes, count);
  }
  void pad(std::uint64_t bytes) {
    constexpr char zeros[8] = {};
    put(zeros, padded(bytes) - bytes);
  }
  void end() {
    const std::uint64_t value = digest_.value();
    put_(&value, sizeof value);
    digest_.restart();
  }

 private:
  const PrivateDirectory::Put& put_;
  DigestOfParts digest_;
};

void put_payload(Digesting& to, const Memory& from) {
  constexpr std::size_t kRun = std::size_t{1} << 20;
  if (from.resource() == &host_memory()) return to.put(from.data(), from.bytes());
  std::vector<std::byte> here(std::min(kRun, from.bytes()));
  for (std::size_t at = 0; at < from.bytes(); at += kRun) {
    const std::size_t n = std::min(kRun, from.bytes() - at);
    from.resource()->read(here.data(), from.data() + at, n);
    to.put(here.data(), n);
  }
}

// From the file's beginning, never more than it has.
class Reader {
 public:
  explicit Reader(ByteSource& from) : from_(from), left_(from.size()) {}
  std::uint64_t left() const { return left_; }
  void get(void* to, std::uint64_t bytes) {
    if (bytes > left_ || !from_.get(to, bytes)) throw StateError("is cut off, or cannot be read to its end");
    left_ -= bytes;
    digest_.add(to, bytes);
  }
  void begin() { digest_.restart(); }  // a record
  void zeros(std::uint64_t bytes) {
    char found[8];
    get(found, bytes);
    for (std::uint64_t i = 0; i < bytes; ++i)
      if (found[i]) throw StateError("is damaged: what should be zeros is not");
  }
  void end() {
    const std::uint64_t expected = digest_.value();
    std::uint64_t found;
    get(&found, sizeof found);
    if (found != expected) throw StateError("is damaged: a checksum does not fit");
    digest_.restart();
  }
  std::string text(std::uint64_t bytes) {
    std::string out(bytes, '\0');
    get(out.data(), bytes);
    return out;
  }

 private:
  ByteSource& from_;
  std::uint64_t left_;
  DigestOfParts digest_;
};

[[noreturn]] void refuse(const char* what) { throw StateError(std::string("is damaged: ") + what); }

void check_floats(const std::byte* from, std::uint64_t count, bool positive) {
  for (std::uint64_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    if (!(std::abs(value) <= kMostMagnitude) || (positive && std::signbit(value)))
      refuse("a value is not one that can be owed");
  }
}

SavedTensor read_tensor(Reader& from, const Record& r) {
  if (r.a != 1 && r.a != 2) refuse("who named a tensor is none of those there are");
  if (r.owner > 1 || r.kind < 1 || r.kind > 3 || r.encoding > 1) refuse("what a tensor's record holds is unknown");
  const auto kind = static_cast<FeedbackKind>(r.kind);
  const auto encoding = static_cast<Encoding>(r.encoding);
  if (encoding == Encoding::bytes && kind != FeedbackKind::residual) refuse("a momentum in bytes");
  if (r.cols || r.q_cols) refuse("what should be zeros is not");
  const std::uint64_t arrays = encoded_bytes(encoding, kind, r.count);
  if (r.payload < arrays || (r.payload - arrays) % sizeof(float)) refuse("a tensor's length does not fit its elements");
  if ((r.payload != arrays) != (r.codec != 0)) refuse("a codec's state belongs to no codec");
  if (!(r.learning_rate == 0 || (r.learning_rate >= 1e-12 && r.learning_rate <= 1e12))) refuse("a learning rate");
  SavedTensor t{r.a == 1 ? Layout::Source::named : Layout::Source::negotiated,
                r.owner == 1,
                from.text(r.name),
                kind,
                encoding,
                r.count,
                r.turns,
                r.roundings,
                r.learning_rate,
                from.text(r.codec),
                {}};
  from.zeros(padded(std::uint64_t{r.name} + r.codec) - r.name - r.codec);
  if (r.payload > from.left()) throw StateError("is cut off");
  t.payload = Memory(r.payload);
  from.get(t.payload.data(), r.payload);
  from.zeros(padded(r.payload) - r.payload);
  from.end();
  const std::uint64_t scales = encoding == Encoding::bytes ? byte_residual::blocks(r.count) : 0;
  check_floats(t.payload.data(), encoding == Encoding::bytes ? scales : arrays / sizeof(float), scales != 0);
  check_floats(t.payload.data() + arrays, (r.payload - arrays) / sizeof(float), false);
  return t;
}

SavedExtents read_extents(Reader& from, const Record& r) {
  if (r.a > 1 || r.owner || r.kind || r.encoding || r.codec || r.turns || r.roundings)
    refuse("what should be zeros is not");
  if (r.cols > r.count || r.q_cols > r.count) refuse("a matrix has more columns than elements");
  SavedExtents e{from.text(r.name), r.count, r.cols, r.q_cols, r.payload, r.a == 1};
  from.zeros(padded(r.name) - r.name);
  from.end();
  return e;
}

using Key = std::tuple<Layout::Source, bool, std::string_view>;

float* floats_of(SavedTensor& t) { return reinterpret_cast<float*>(t.payload.data()); }

// PowerSGD's, which are equal on all ranks.
bool shared_state(const std::string& codec) {
  try {
    return make_codec(codec)->traits().whole_tensors;
  } catch (const Error&) {
    return false;  // of another build
  }
}

}  // namespace

bool write_state(const StateHeader& header, const std::vector<TensorView>& tensors,
                 const std::vector<SavedExtents>& extents, const PrivateDirectory::Put& put) {
  FileHeader h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.version = kVersion;
  h.rank = header.rank, h.ranks = header.ranks;
  h.generation = header.generation, h.set = header.set;
  h.sequence = header.sequence;
  bool all = true;
  const auto fits = [](std::size_t name, std::size_t codec) {
    return name >= 1 && name <= kLongestName && codec <= kLongestCodec;
  };
  h.bytes = sizeof h;
  for (const TensorView& t : tensors)
    if (fits(t.name.size(), t.codec.size()))
      ++h.records, h.bytes += record_bytes(t.name.size() + t.codec.size(), t.payload->bytes());
    else all = false;
  for (const SavedExtents& e : extents)
    if (fits(e.name.size(), 0)) ++h.records, h.bytes += record_bytes(e.name.size(), 0);
  h.digest = digest(&h, offsetof(FileHeader, digest));
  put(&h, sizeof h);

  Digesting to(put);
  for (const TensorView& t : tensors) {
    if (!fits(t.name.size(), t.codec.size())) continue;
    Record r{};
    r.type = kTensor, r.a = source_byte(t.source), r.owner = t.owner;
    r.kind = static_cast<std::uint8_t>(t.kind), r.encoding = static_cast<std::uint8_t>(t.encoding);
    r.name = static_cast<std::uint32_t>(t.name.size()), r.codec = static_cast<std::uint32_t>(t.codec.size());
    r.count = t.count, r.payload = t.payload->bytes();
    r.turns = t.turns, r.roundings = t.roundings, r.learning_rate = t.learning_rate;
    to.put(&r, sizeof r);
    to.put(t.name.data(), t.name.size());
    to.put(t.codec.data(), t.codec.size());
    to.pad(t.name.size() + t.codec.size());
    put_payload(to, *t.payload);
    to.pad(t.payload->bytes());
    to.end();
  }
  for (const SavedExtents& e : extents) {
    if (!fits(e.name.size(), 0)) continue;
    Record r{};
    r.type = kExtents, r.a = e.given;
    r.name = static_cast<std::uint32_t>(e.name.size());
    r.count = e.count, r.payload = e.calls, r.cols = e.cols, r.q_cols = e.q_cols;
    to.put(&r, sizeof r);
    to.put(e.name.data(), e.name.size());
    to.pad(e.name.size());
    to.end();
  }
  return all;
}

SavedState read_state(ByteSource& source) {
  Reader from(source);
  FileHeader h;
  if (from.left() < sizeof h) throw StateError("is no file of Crimp's state, or cut off");
  from.get(&h, sizeof h);
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) != 0) throw StateError("is no file of Crimp's state");
  if (h.version != kVersion)
    throw StateError("has format version " + std::to_string(h.version) + ", this Crimp knows " +
                     std::to_string(kVersion));
  if (h.digest != digest(&h, offsetof(FileHeader, digest))) refuse("a checksum does not fit");
  if (h.flags || h.ranks == 0 || h.rank >= h.ranks || h.generation == 0) refuse("its header makes no sense");
  if (h.bytes != source.size()) throw StateError("is cut off, or longer than it was");
  if (h.records > from.left() / (sizeof(Record) + sizeof(std::uint64_t))) refuse("it has no room for its records");

  SavedState state{{h.rank, h.ranks, h.generation, h.set, h.sequence}, {}, {}};
  std::set<Key> tensors;
  std::set<std::pair<std::string_view, std::uint64_t>> extents;
  state.tensors.reserve(h.records);  // so that names stay where keys point to
  state.extents.reserve(h.records);
  from.begin();
  for (std::uint32_t i = 0; i < h.records; ++i) {
    Record r;
    from.get(&r, sizeof r);
    if (r.zero[0] || r.zero[1] || r.zero[2]) refuse("what should be zeros is not");
    if (r.name < 1 || r.name > kLongestName || r.codec > kLongestCodec) refuse("a name's length");
    if (r.count < 1 || r.count > kMostElements) refuse("a number of elements");
    if (r.type == kTensor) {
      const SavedTensor& t = state.tensors.emplace_back(read_tensor(from, r));
      if (!tensors.insert({t.source, t.owner, t.name}).second) refuse("a tensor is in it twice");
    } else if (r.type == kExtents) {
      const SavedExtents& e = state.extents.emplace_back(read_extents(from, r));
      if (!extents.insert({e.name, e.count}).second) refuse("a tensor's shape is in it twice");
    } else {
      refuse("a record of a kind that there is not");
    }
  }
  if (from.left()) refuse("there is something behind its last record");
  return state;
}

Sources sources_of(std::uint32_t rank, std::uint32_t ranks, std::uint32_t old_ranks) {
  Sources all{{}, rank < old_ranks};
  for (std::uint64_t r = rank; r < old_ranks; r += ranks) all.ranks.push_back(static_cast<std::uint32_t>(r));
  if (all.ranks.empty()) all.ranks.push_back(rank % old_ranks);
  return all;
}

void Redistribution::add(SavedTensor t) {
  const std::uint64_t arrays = encoded_bytes(Encoding::float32, t.kind, t.count);
  const std::uint64_t before = encoded_bytes(t.encoding, t.kind, t.count);
  const bool keeps_state = !t.codec.empty() && !t.owner && shared_state(t.codec);
  const std::uint64_t state = keeps_state ? t.payload.bytes() - before : 0;
  Memory payload(arrays + state);
  auto* const values = reinterpret_cast<float*>(payload.data());
  if (values_) {
    if (t.encoding == Encoding::bytes) byte_residual::expand(t.payload.data(), t.count, values);
    else std::memcpy(values, t.payload.data(), arrays);
  }
  if (state) std::memcpy(payload.data() + arrays, t.payload.data() + before, state);
  t.payload = std::move(payload);
  t.encoding = Encoding::float32;
  if (!keeps_state) t.codec.clear();
  t.owner = false;

  const auto [known, is_new] = places_.try_emplace({t.source, t.name}, sum_.tensors.size());
  if (is_new) {
    sum_.tensors.push_back(std::move(t));
    return;
  }
  SavedTensor* const same = &sum_.tensors[known->second];
  if (same->count != t.count) return;  // it has changed while one of the ranks was away
  // A momentum's first array is what a residual is.
  const bool alike = same->kind == t.kind;
  if (!alike && (same->kind == FeedbackKind::average || t.kind == FeedbackKind::average)) return;
  if (!alike && t.kind == FeedbackKind::momentum) std::swap(*same, t);  // the longer one takes the other
  const double ratio = same->learning_rate == 0 || t.learning_rate == 0 ? 1 : t.learning_rate / same->learning_rate;
  const std::uint64_t n = t.count * (alike ? static_cast<std::uint64_t>(FeedbackPolicy{t.kind}.arrays()) : 1);
  float* const to = floats_of(*same);
  const float* const from = floats_of(t);
  for (std::uint64_t i = 0; i < n; ++i) to[i] += static_cast<float>(ratio * static_cast<double>(from[i]));
  same->turns = std::max(same->turns, t.turns);
  if (alike && same->codec.empty() && keeps_state) {  // an owner's came first
    Memory longer(arrays + state);
    std::memcpy(longer.data(), same->payload.data(), arrays);
    std::memcpy(longer.data() + arrays, t.payload.data() + arrays, state);
    same->payload = std::move(longer);
    same->codec = t.codec;
  }
}

void Redistribution::add(SavedState other) {
  if (std::exchange(first_, false)) {
    sum_.header = other.header;
    sum_.extents = std::move(other.extents);
  }
  for (SavedTensor& t : other.tensors) add(std::move(t));
}

}  // namespace crimp
