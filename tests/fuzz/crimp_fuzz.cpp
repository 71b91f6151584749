// Mutated payloads for the decoder of every codec of the registry, with every parameter setting that the tests run.
//
//   crimp_fuzz --mutations 10000000 --seed 7          the long run
//   crimp_fuzz --codec 3lc:s=1.5 --first 4711 --mutations 1    one again, as a failure says
//
// Mutation k of a codec is a function of (seed, codec text, k). Checked: no crash and no read behind the body (it ends
// at a page that cannot be read), nothing written outside the groups, a refusal of a body has a text, a refusal of a
// piece blames the changed body, a body that is accepted decodes to neither NaN nor Inf (unless the codec sends floats
// as they are), changed or not, and unchanged bodies, of finite values, are accepted.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "codec/payload.hpp"
#include "command_line.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "memory/workers.hpp"
#include "support/data.hpp"
#include "support/specs.hpp"

using namespace crimp;
using namespace crimp::test;

namespace {

using Bytes = std::vector<std::uint8_t>;

// Where the codec sends floats that are results by themselves, the format takes any bits and the decoder gives them
// back.
constexpr const char* kFloatsAsTheyAre[] = {"fp32", "fp16", "bf16"};

// The mutation under way, for the handler of a crash.
char under_way[512];
void on_crash(int signal) {
  const auto put = [](const char* text) { [[maybe_unused]] const auto n = ::write(2, text, std::strlen(text)); };
  put("crimp_fuzz: crashed in ");
  put(under_way);
  put("\n");
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

struct Options {
  std::uint64_t mutations = 100000, seed = 1, first = 0;
  std::string codec;
};

// Bytes whose end is the end of the readable memory.
class LastPage {
 public:
  explicit LastPage(std::size_t most)
      : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))), room_((most + page_ - 1) / page_ * page_) {
    void* at = ::mmap(nullptr, room_ + page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::runtime_error("no memory");
    memory_ = static_cast<std::uint8_t*>(at);
    ::mprotect(memory_ + room_, page_, PROT_NONE);
  }
  ~LastPage() { ::munmap(memory_, room_ + page_); }
  LastPage(const LastPage&) = delete;
  LastPage& operator=(const LastPage&) = delete;
  std::span<const std::uint8_t> hold(const Bytes& bytes) {
    if (bytes.size() > room_) throw std::logic_error("a mutation longer than the page holds");
    if (!bytes.empty()) std::memcpy(memory_ + room_ - bytes.size(), bytes.data(), bytes.size());
    return {memory_ + room_ - bytes.size(), bytes.size()};
  }

 private:
  std::size_t page_, room_;
  std::uint8_t* memory_;
};

// One shape with payloads of its own.
struct Target {
  ChunkPartition partition;
  std::vector<Bytes> bodies;  // of several ranks and kinds of data
  RandomCounter counter;
};

Target make_target(const Codec& codec, std::uint64_t seed, std::vector<std::int64_t> runs) {
  Target target;
  std::size_t most = 0;
  for (const auto n : runs) {  // negative: a gap
    if (n < 0) target.partition.add_gap(static_cast<std::uint64_t>(-n));
    else target.partition.add_group(static_cast<std::uint64_t>(n));
  }
  target.counter = {seed % 7 * 4096, static_cast<std::uint32_t>(seed % 5), 0};
  Workers workers(1);
  const Data kinds[] = {Data::normal, Data::sparse, Data::alternating, Data::zeros, Data::tiny, Data::huge};
  for (std::uint32_t rank = 0; rank < std::size(kinds); ++rank) {
    auto values = make_data(kinds[rank], seed + rank, target.partition.count());
    const float limit = codec.traits().max_magnitude / 4;
    for (float& x : values) x = std::fmin(std::fmax(x, -limit), limit);
    Bytes body(target.partition.body_bound(codec));
    RandomCounter counter = target.counter;
    counter.rank = rank;
    body.resize(encode_body(codec, target.partition, values.data(), {}, counter, body.data(), nullptr, workers));
    most = std::max(most, body.size());
    target.bodies.push_back(std::move(body));
  }
  return target;
}

class Dice {
 public:
  Dice(std::uint64_t seed, std::uint64_t mutation)
      : random_(seed, static_cast<std::uint32_t>(mutation), static_cast<std::uint32_t>(mutation >> 32)) {}
  std::uint64_t operator()(std::uint64_t n) { return random_.bits(next_++) % n; }  // 0 .. n - 1
  std::uint8_t byte() { return static_cast<std::uint8_t>(random_.bits(next_++)); }

 private:
  Random random_;
  std::uint64_t next_ = 0;
};

std::uint8_t interesting_byte(Dice& dice) {
  constexpr std::uint8_t kBytes[] = {0, 1, 2, 0x0f, 0x10, 0x3f, 0x40, 0x7f, 0x80, 0x81, 0xf0, 0xfe, 0xff};
  const auto i = dice(std::size(kBytes) + 2);
  return i < std::size(kBytes) ? kBytes[i] : dice.byte();
}

float interesting_float(Dice& dice) {
  constexpr float kFloats[] = {0.0f,
                               -0.0f,
                               1.0f,
                               -1.0f,
                               0x1p-149f,
                               -0x1p-149f,
                               0x1p-126f,
                               0x1p127f,
                               std::numeric_limits<float>::max(),
                               -std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN()};
  const auto i = dice(std::size(kFloats) + 1);
  return i < std::size(kFloats) ? kFloats[i]
                                : std::bit_cast<float>(static_cast<std::uint32_t>(dice(std::uint64_t{1} << 32)));
}

std::uint16_t length_at(const Bytes& body, std::size_t piece) {
  std::uint16_t length;
  std::memcpy(&length, body.data() + 2 * piece, sizeof length);
  return length;
}
void set_length(Bytes& body, std::size_t piece, std::uint64_t length) {
  const auto l = static_cast<std::uint16_t>(length);
  std::memcpy(body.data() + 2 * piece, &l, sizeof l);
}

// Changes `body`, which is a legal one of `target`. Most kinds keep what the framing checks, so that the codecs' own
// checks are reached.
void mutate(const Codec& codec, const Target& target, Bytes& body, Dice& dice) {
  const ChunkPartition& partition = target.partition;
  const bool lengths = !codec.traits().fixed_size;
  const std::size_t prefix = partition.prefix_bytes(codec), pieces = partition.pieces().size();
  std::vector<std::size_t> begin(pieces + 1, prefix);
  for (std::size_t p = 0; p < pieces; ++p)
    begin[p + 1] = begin[p] + (lengths ? length_at(body, p) : codec.piece_bound(partition.pieces()[p].count));
  const auto repad = [&](std::size_t used) { body.resize(round_up(used, kPayloadAlign), 0); };
  const auto piece = dice(pieces);
  const std::size_t at = begin[piece], bytes = begin[piece + 1] - at;
  const auto used = begin[pieces] - prefix;
  switch (dice(11)) {
    case 0:  // bits anywhere
      for (auto n = 1 + dice(8); n > 0 && !body.empty(); --n)
        body[dice(body.size())] ^= static_cast<std::uint8_t>(1u << dice(8));
      break;
    case 1:  // bits of pieces
      for (auto n = 1 + dice(4); n > 0 && used > 0; --n)
        body[prefix + dice(used)] ^= static_cast<std::uint8_t>(1u << dice(8));
      break;
    case 2:  // bytes of one piece, its first ones more often: headers and scales are there
      for (auto n = 1 + dice(4); n > 0 && bytes > 0; --n)
        body[at + dice(dice(2) ? bytes : std::min<std::size_t>(bytes, 16))] = interesting_byte(dice);
      break;
    case 3: {  // a scale, or two neighbours
      const std::size_t counter = dice(4) ? 0 : 4 * dice(std::max<std::size_t>(1, bytes / 4));
      for (std::size_t i = counter, n = 1 + dice(2); n > 0 && i + sizeof(float) <= bytes; --n, i += sizeof(float)) {
        const float x = interesting_float(dice);
        std::memcpy(body.data() + at + i, &x, sizeof x);
      }
      break;
    }
    case 4: {  // a run of random bytes
      if (bytes == 0) break;
      const auto from = dice(bytes), n = 1 + dice(bytes - from);
      for (auto i = from; i < from + n; ++i) body[at + i] = dice.byte();
      break;
    }
    case 5: {  // cut or prolonged
      const auto size = dice(3) == 0 ? dice(body.size() + 130)
                        : dice(2)    ? body.size() / 64 * 64 + 64 * dice(3)
                                     : body.size() - std::min<std::size_t>(body.size(), 64 * (1 + dice(4)));
      body.resize(size, dice(2) ? 0 : dice.byte());
      break;
    }
    case 6: {  // two payloads spliced
      const Bytes& other = target.bodies[dice(target.bodies.size())];
      const auto from = dice(std::max<std::size_t>(1, std::min(body.size(), other.size())));
      Bytes both(body.begin(), body.begin() + static_cast<std::ptrdiff_t>(std::min(from, body.size())));
      both.insert(both.end(), other.begin() + static_cast<std::ptrdiff_t>(std::min(from, other.size())), other.end());
      body = std::move(both);
      break;
    }
    case 7: {  // lengths alone, or one piece's bytes given to its neighbour
      if (!lengths || prefix == 0) break;
      if (dice(2) || pieces < 2) {
        set_length(body, piece, dice(2) ? dice(65536) : dice(codec.piece_bound(partition.pieces()[piece].count) + 2));
      } else {
        const std::size_t next = (piece + 1) % pieces, moved = dice(bytes + 1);
        set_length(body, piece, bytes - moved);
        set_length(body, next, length_at(body, next) + moved);
      }
      break;
    }
    case 8: {  // bytes put in or taken out, everything else made to fit
      if (!lengths || prefix == 0) break;
      const auto bound = codec.piece_bound(partition.pieces()[piece].count);
      const auto from = static_cast<std::ptrdiff_t>(at + dice(bytes + 1));
      body.resize(begin[pieces]);
      std::size_t now = bytes;
      if (dice(2) && bytes < bound) {
        const auto n = 1 + dice(std::min<std::size_t>(bound - bytes, 20));
        Bytes fresh(n);
        const bool same = dice(2);
        for (auto& b : fresh) b = same ? fresh[0] ? fresh[0] : interesting_byte(dice) : interesting_byte(dice);
        body.insert(body.begin() + from, fresh.begin(), fresh.end());
        now += n;
      } else if (bytes > 0) {
        const auto n = std::min<std::size_t>(1 + dice(20), at + bytes - static_cast<std::size_t>(from));
        body.erase(body.begin() + from, body.begin() + from + static_cast<std::ptrdiff_t>(n));
        now -= n;
      }
      set_length(body, piece, now);
      repad(begin[pieces] - bytes + now);
      break;
    }
    case 9:  // everything random behind the scales
      for (std::size_t i = dice(2) ? 4 : 0; i < bytes; ++i) body[at + i] = dice.byte();
      break;
    case 10: {  // one byte value all over
      const std::uint8_t value = interesting_byte(dice);
      for (std::size_t i = dice(2) ? 4 : 0; i < bytes; ++i) body[at + i] = value;
      break;
    }
  }
}

struct Tally {
  std::uint64_t mutations = 0, framing = 0, piece = 0, accepted = 0;
};

class Fuzzer {
 public:
  Fuzzer(const Codec& codec, const Options& options) : codec_(codec), options_(options), seed_(options.seed * 1000003) {
    for (const char c : codec.spec()) seed_ = (seed_ ^ static_cast<std::uint8_t>(c)) * 0x100000001b3;
    // Small shapes are quick; the last two have whole and several pieces.
    targets_.push_back(make_target(codec, seed_, {33}));
    targets_.push_back(make_target(codec, seed_ + 1, {1, 320, -5, 129}));
    targets_.push_back(make_target(codec, seed_ + 2, {-64, 5, 2, 700, -1, 63, 1500}));
    targets_.push_back(make_target(codec, seed_ + 3, {2049, -100, 4096}));
    targets_.push_back(make_target(codec, seed_ + 4, {10240, 7}));
    targets_.push_back(make_target(codec, seed_ + 5, {12000, -3, 33, 10240}));
    std::size_t most = 0;
    for (const auto& t : targets_)
      for (const auto& b : t.bodies) most = std::max({most, t.partition.body_bound(codec), b.size()});
    pages_.push_back(std::make_unique<LastPage>(2 * most + 65536));
    pages_.push_back(std::make_unique<LastPage>(2 * most + 65536));
    floats_ = std::find(std::begin(kFloatsAsTheyAre), std::end(kFloatsAsTheyAre),
                        std::string_view(codec.traits().name)) != std::end(kFloatsAsTheyAre);
  }

  // Throws std::runtime_error that says what was broken.
  void unchanged() {
    for (const Target& target : targets_)
      for (const Bytes& body : target.bodies) {
        std::snprintf(under_way, sizeof under_way, "%s, unchanged", codec_.spec().c_str());
        Tally tally;
        decode(target, body, body, true, tally);
        if (tally.accepted != 1)
          throw std::runtime_error("an unchanged payload of " + std::to_string(target.partition.count()) +
                                   " elements is refused");
      }
  }
  void mutation(std::uint64_t k, Tally& tally) {
    std::snprintf(under_way, sizeof under_way, "crimp_fuzz --codec %s --seed %llu --first %llu --mutations 1",
                  codec_.spec().c_str(), static_cast<unsigned long long>(options_.seed),
                  static_cast<unsigned long long>(k));
    Dice dice(seed_, k);
    const auto size = dice(64);
    const Target& target = targets_[size < 20 ? 0 : size < 40 ? 1 : size < 58 ? 2 : size < 61 ? 3 : size < 63 ? 4 : 5];
    Bytes body = target.bodies[dice(target.bodies.size())];
    for (auto rounds = 1 + dice(4) / 3; rounds > 0; --rounds) {
      BodyView legal;
      if (!legal.open(codec_, target.partition, body).empty()) break;  // a second change needs the framing of the first
      mutate(codec_, target, body, dice);
    }
    ++tally.mutations;
    decode(target, target.bodies[dice(target.bodies.size())], body, dice(2), tally);
  }

 private:
  void decode(const Target& target, const Bytes& other, const Bytes& body, bool alone, Tally& tally) {
    std::vector<BodyView> views(alone ? 1 : 2);
    const std::size_t mine = alone ? 0 : 1;
    const std::string refusal = views[mine].open(codec_, target.partition, pages_[0]->hold(body));
    if (!refusal.empty()) {
      if (refusal.size() < 15 || refusal.find_first_of("0123456789") == refusal.npos)
        throw std::runtime_error("the refusal '" + refusal + "' names no value");
      ++tally.framing;
      return;
    }
    if (!alone && !views[0].open(codec_, target.partition, pages_[1]->hold(other)).empty())
      throw std::runtime_error("an unchanged payload is refused");
    const std::uint64_t count = target.partition.count();
    out_.assign(count + 2 * kGuard, kPattern);
    Workers& workers = one_;
    const int bad = decode_add(codec_, target.partition, views, target.counter, out_.data() + kGuard, false, workers);
    std::uint64_t at = 0;
    const auto untouched = [&](std::uint64_t to) {
      for (; at < to; ++at)
        if (std::bit_cast<std::uint32_t>(out_[at]) != std::bit_cast<std::uint32_t>(kPattern))
          throw std::runtime_error("element " + std::to_string(static_cast<std::int64_t>(at - kGuard)) + " of " +
                                   std::to_string(count) + ", outside the groups, was written");
    };
    for (const Group& g : target.partition.groups()) {
      untouched(kGuard + g.offset);
      at += g.count;
    }
    untouched(out_.size());
    if (bad >= 0) {
      if (bad != static_cast<int>(mine)) throw std::runtime_error("a malformed piece is laid on the unchanged payload");
      ++tally.piece;
      return;
    }
    ++tally.accepted;
    if (floats_ || !alone) return;
    for (const Group& g : target.partition.groups())
      for (std::uint64_t i = g.offset; i < g.offset + g.count; ++i)
        if (!std::isfinite(out_[kGuard + i]))
          throw std::runtime_error("an accepted payload gives " + std::to_string(out_[kGuard + i]) + " for element " +
                                   std::to_string(i));
  }

  static constexpr std::uint64_t kGuard = 64;
  static constexpr float kPattern = -12345.678f;
  const Codec& codec_;
  const Options& options_;
  std::uint64_t seed_;
  std::vector<Target> targets_;
  std::vector<std::unique_ptr<LastPage>> pages_;
  std::vector<float> out_;
  Workers one_{1};
  bool floats_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  tools::CommandLine app("Feeds mutated payloads to the decoders of all codecs");
  app.show_defaults();
  app.option("--mutations", options.mutations, "in all, shared by the codecs' settings; 10M for a long run")
      .units({{"k", 1000}, {"M", 1000000}});
  app.option("--seed", options.seed, "of everything random");
  app.option("--first", options.first, "number of the first mutation, to have one again");
  app.option("--codec", options.codec, "one setting only, as in CRIMP_CODEC");
  if (const auto code = app.parse({argv + 1, argv + argc})) return *code;
  for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::signal(s, on_crash);

  std::vector<std::shared_ptr<const Codec>> all;
  try {
    if (options.codec.empty()) all = all_codecs();
    else all.push_back(make_codec(options.codec));
  } catch (const Error& e) {
    std::fprintf(stderr, "crimp_fuzz: %s\n", e.what());
    return 2;
  }
  const std::uint64_t each = (options.mutations + all.size() - 1) / all.size();
  int failures = 0;
  Tally total;
  std::printf("%-44s %12s %12s %12s %12s\n", "codec", "mutations", "framing", "piece", "accepted");
  for (const auto& codec : all) {
    Tally tally;
    try {
      Fuzzer fuzzer(*codec, options);
      fuzzer.unchanged();
      for (std::uint64_t k = options.first; k < options.first + each; ++k) fuzzer.mutation(k, tally);
    } catch (const std::exception& e) {
      std::printf("FAILED: %s\n  %s\n", under_way, e.what());
      ++failures;
    }
    std::printf("%-44s %12llu %12llu %12llu %12llu\n", codec->spec().c_str(),
                static_cast<unsigned long long>(tally.mutations), static_cast<unsigned long long>(tally.framing),
                static_cast<unsigned long long>(tally.piece), static_cast<unsigned long long>(tally.accepted));
    std::fflush(stdout);
    total.mutations += tally.mutations;
    total.framing += tally.framing;
    total.piece += tally.piece;
    total.accepted += tally.accepted;
  }
  std::printf(
      "%llu mutations of %zu settings, seed %llu: %llu refused by the framing, %llu by the codec, %llu accepted, %d settings failed\n",
      static_cast<unsigned long long>(total.mutations), all.size(), static_cast<unsigned long long>(options.seed),
      static_cast<unsigned long long>(total.framing), static_cast<unsigned long long>(total.piece),
      static_cast<unsigned long long>(total.accepted), failures);
  return failures ? 1 : 0;
}
