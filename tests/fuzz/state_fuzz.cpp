// Made-up files of saved state (collective/saved_state.hpp) whose checksums fit.
//
//   crimp_state_fuzz --mutations 1000000 --seed 7
//   crimp_state_fuzz --first 4711 --mutations 1    one again, as a failure says
//
// Mutation k is a function of (seed, k). Checked: no crash, nothing read behind the end, no more held than
// the file has, only StateError is thrown; and what is read can be spread over ranks, taken by a store and written
// again.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "collective/residual.hpp"
#include "collective/saved_state.hpp"
#include "core/digest.hpp"
#include "core/error.hpp"
#include "core/random.hpp"

using namespace crimp;

namespace {

using Bytes = std::vector<std::uint8_t>;

struct Options {
  std::uint64_t mutations = 100000, seed = 1, first = 0;
};

class Source final : public ByteSource {
 public:
  explicit Source(const Bytes& of) : of_(of) {}
  std::uint64_t size() const override { return of_.size(); }
  bool get(void* to, std::size_t n) override {
    if (n > of_.size() - at_) return false;
    if (n) std::memcpy(to, of_.data() + at_, n);
    at_ += n;
    return true;
  }

 private:
  const Bytes& of_;
  std::size_t at_ = 0;
};

std::uint64_t under_way = 0;
void on_crash(int signal) {
  char text[64];
  const int n = std::snprintf(text, sizeof text, "crimp_state_fuzz: crashed in mutation %llu\n",
                              static_cast<unsigned long long>(under_way));
  [[maybe_unused]] const auto written = ::write(2, text, static_cast<std::size_t>(n));
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

Bytes bytes_of(const StateHeader& header, const std::vector<TensorView>& tensors,
               const std::vector<SavedExtents>& extents) {
  Bytes out;
  write_state(header, tensors, extents, [&](const void* bytes, std::size_t n) {
    const auto* const from = static_cast<const std::uint8_t*>(bytes);
    out.insert(out.end(), from, from + n);
  });
  return out;
}

// A file of some tensors, and where its records begin.
struct File {
  Bytes bytes;
  std::vector<std::size_t> records;
};

File example(const Random& random) {
  std::vector<SavedTensor> tensors;
  std::vector<SavedExtents> extents;
  const std::uint32_t n = random.bits(0) % 5;
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint32_t how = random.bits(10 + i);
    const auto kind = static_cast<FeedbackKind>(1 + how % 3);
    const auto encoding = kind == FeedbackKind::residual && how & 16 ? Encoding::bytes : Encoding::float32;
    const std::uint64_t count = 1 + random.bits(20 + i) % 600, state = how & 32 ? 2 * (how % 4) : 0;
    SavedTensor t{how & 64 ? Layout::Source::named : Layout::Source::negotiated,
                  (how & 128) != 0,
                  "tensor." + std::string(how % 13, 'x') + std::to_string(i),
                  kind,
                  encoding,
                  count,
                  how,
                  how,
                  0.25,
                  state ? (how & 256 ? make_codec("powersgd")->spec() : std::string("topk")) : std::string(),
                  {}};
    t.payload = Memory(encoded_bytes(encoding, kind, count) + 4 * state);
    tensors.push_back(std::move(t));
  }
  if (random.bits(1) & 1) extents.push_back({"tensor", 12, 3, 3, 9, true});
  std::vector<TensorView> views;
  for (const SavedTensor& t : tensors)
    views.push_back({t.source, t.owner, t.name, t.kind, t.encoding, t.count, t.turns, t.roundings, t.learning_rate,
                     t.codec, &t.payload});
  File file{bytes_of({random.bits(2) % 3, 3, 5, 6, 7}, views, extents), {}};
  std::size_t at = 64;
  const auto padded = [](std::size_t k) { return (k + 7) / 8 * 8; };
  for (const SavedTensor& t : tensors) {
    file.records.push_back(at);
    at += 64 + padded(t.name.size() + t.codec.size()) + padded(t.payload.bytes()) + 8;
  }
  for (const SavedExtents& e : extents) {
    file.records.push_back(at);
    at += 64 + padded(e.name.size()) + 8;
  }
  return file;
}

void put(Bytes& to, std::size_t at, std::uint64_t value) {
  if (at + 8 <= to.size()) std::memcpy(to.data() + at, &value, 8);
}

Bytes mutated(File file, const Random& random) {
  Bytes& b = file.bytes;
  const std::uint32_t changes = 1 + random.bits(100) % 4;
  for (std::uint32_t c = 0; c < changes; ++c) {
    const std::uint32_t how = random.bits(104 + 4 * c), where = random.bits(105 + 4 * c),
                        what = random.bits(106 + 4 * c);
    // Mostly in headers, where numbers are that decide.
    std::size_t at = where % b.size();
    if (how % 4 && !file.records.empty()) at = file.records[where % file.records.size()] + where / 7 % 64;
    if (how % 16 == 0) at = where % 56;
    if (at >= b.size()) continue;
    switch (how / 16 % 5) {
      case 0: b[at] = static_cast<std::uint8_t>(what); break;
      case 1: b[at] = static_cast<std::uint8_t>(b[at] + 1); break;
      case 2: put(b, at / 8 * 8, std::uint64_t{what} << (how % 33)); break;
      case 3: put(b, at / 8 * 8, ~std::uint64_t{0} >> (how % 64)); break;
      default: b.resize(how % 3 ? b.size() : std::max<std::size_t>(64, at)); break;
    }
  }
  // Checksums that fit, where the records were.
  for (std::size_t i = 0; i < file.records.size(); ++i) {
    const std::size_t from = file.records[i], to = i + 1 < file.records.size() ? file.records[i + 1] : b.size();
    if (to <= b.size() && to >= from + 8) put(b, to - 8, digest(b.data() + from, to - 8 - from));
  }
  if (random.bits(101) % 8) put(b, 48, b.size());
  if (b.size() >= 64) put(b, 56, digest(b.data(), 56));
  return std::move(b);
}

void use(SavedState state) {
  std::vector<TensorView> views;
  for (const SavedTensor& t : state.tensors)
    views.push_back({t.source, t.owner, t.name, t.kind, t.encoding, t.count, t.turns, t.roundings, t.learning_rate,
                     t.codec, &t.payload});
  const Bytes again = bytes_of(state.header, views, state.extents);
  Source source(again);
  Redistribution sum(true);
  sum.add(read_state(source));
  Source once_more(again);
  sum.add(read_state(once_more));
  SavedState spread = sum.take();
  ResidualStore store;
  store.keep_bytes(1);
  for (auto* const of : {&state, &spread}) {
    std::vector<ResidualShape> shapes;
    std::vector<std::string> names;
    for (const SavedTensor& t : of->tensors) {
      shapes.push_back({t.count, t.kind, encoded_bytes(Encoding::float32, t.kind, t.count) / 4, nullptr});
      names.push_back(t.name);
    }
    store.load(std::move(of->tensors));
    store.begin_call();
    for (std::size_t i = 0; i < names.size(); ++i) try {
        Residual& r = store.find({Layout::Source::named, false, names[i]}, shapes[i]);
        for (std::uint64_t k = 0; k < shapes[i].elements; ++k)
          if (!std::isfinite(r.values[k])) throw std::logic_error("a value is not finite");
      } catch (const Error& e) {
        if (e.code() != ErrorCode::layout_invalid) throw;  // a name twice
      }
    store.settle();
    store.keep();
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--mutations") o.mutations = value;
    else if (name == "--seed") o.seed = value;
    else if (name == "--first") o.first = value;
    else return std::fprintf(stderr, "crimp_state_fuzz: unknown option %s\n", argv[i]), 2;
  }
  for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) ::signal(s, on_crash);
  std::uint64_t refused = 0, taken = 0;
  for (std::uint64_t k = o.first; k < o.first + o.mutations; ++k) {
    under_way = k;
    const Random random(o.seed, static_cast<std::uint32_t>(k), static_cast<std::uint32_t>(k >> 32));
    const Bytes bytes = mutated(example(random), random);
    Source source(bytes);
    try {
      SavedState state = read_state(source);
      std::uint64_t held = 0;
      for (const SavedTensor& t : state.tensors) held += t.payload.bytes() + t.name.size() + t.codec.size();
      if (held > bytes.size()) throw std::logic_error("more was read than the file has");
      use(std::move(state));
      ++taken;
    } catch (const StateError&) {
      ++refused;
    } catch (const std::exception& e) {
      std::fprintf(stderr, "crimp_state_fuzz: mutation %llu of seed %llu: %s\n", static_cast<unsigned long long>(k),
                   static_cast<unsigned long long>(o.seed), e.what());
      return 1;
    }
  }
  std::printf("%llu files: %llu refused, %llu read\n", static_cast<unsigned long long>(o.mutations),
              static_cast<unsigned long long>(refused), static_cast<unsigned long long>(taken));
  return refused && taken ? 0 : 1;
}
