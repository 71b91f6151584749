// Files of saved state: what is written is read, by bytes that STATE_FORMAT.md says; whatever else is refused; and what
// is owed to the sum over the ranks stays the same with any number of them.
#include "collective/saved_state.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/digest.hpp"
#include "core/random.hpp"
#include "support/saved_tensors.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("saved_state") {
  namespace {

  using Bytes = std::vector<std::uint8_t>;

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

  Bytes written(const SavedState& state, bool whole = true) {
    std::vector<TensorView> views;
    for (const SavedTensor& t : state.tensors)
      views.push_back({t.source, t.owner, t.name, t.kind, t.encoding, t.count, t.turns, t.roundings, t.learning_rate,
                       t.codec, &t.payload});
    Bytes out;
    const bool all = write_state(state.header, views, state.extents, [&](const void* bytes, std::size_t n) {
      const auto* const from = static_cast<const std::uint8_t*>(bytes);
      out.insert(out.end(), from, from + n);
    });
    CHECK(all == whole);
    return out;
  }

  SavedState read(const Bytes& bytes) {
    Source source(bytes);
    return read_state(source);
  }

  // Memory that is not the host's, to whoever asks.
  struct Elsewhere final : MemoryResource {
    std::byte* allocate(std::size_t bytes) override { return host_memory().allocate(bytes); }
    void free(std::byte* at, std::size_t bytes) noexcept override { host_memory().free(at, bytes); }
    void read(void* host, const void* from, std::size_t bytes) override { host_memory().read(host, from, bytes); }
    void write(void* to, const void* host, std::size_t bytes) override { host_memory().write(to, host, bytes); }
  };

  // Of `count` elements; what is behind them is a codec's.
  SavedTensor with_state(const std::string& name, std::uint64_t count, const std::vector<float>& values) {
    SavedTensor t = saved_tensor(name, values);
    t.count = count;
    t.codec = make_codec("powersgd")->spec();
    return t;
  }

  // One rank that takes over from two.
  SavedState sum_of(SavedTensor of_first, SavedTensor of_second) {
    Redistribution sum(true);
    SavedState first{{0, 2, 1, 0, 0}, {}, {}}, second{{1, 2, 1, 0, 0}, {}, {}};
    first.tensors.push_back(std::move(of_first));
    second.tensors.push_back(std::move(of_second));
    sum.add(std::move(first));
    sum.add(std::move(second));
    return sum.take();
  }

  // All that a file can hold.
  SavedState example() {
    SavedState state{{1, 3, 12, 0xabcdef, 77}, {}, {}};
    state.tensors.push_back(saved_tensor("a.weight", {1, -2, 0.5f, 3, 0}));
    state.tensors.push_back(saved_tensor("a.weight", {4, 4, 4, 4, 4}, FeedbackKind::residual, true));
    state.tensors.push_back(in_bytes(saved_tensor("b", std::vector<float>(300, 0.25f))));
    state.tensors.push_back(saved_tensor("m", {1, 2, 3, 10, 20, 30}, FeedbackKind::momentum));
    state.tensors.back().source = Layout::Source::negotiated;
    state.tensors.back().learning_rate = 0.125;
    state.tensors.push_back(with_state("q", 2, {1, 2, 7, 8, 9}));
    state.extents.push_back({"q", 2, 1, 1, 40, true});
    return state;
  }

  void reseal(Bytes& bytes) {  // a header that says so
    const std::uint64_t sum = digest(bytes.data(), 56);
    std::memcpy(bytes.data() + 56, &sum, 8);
  }

  }  // namespace

  TEST_CASE("what is written is read") {
    const SavedState state = example(), back = read(written(state));
    CHECK(back.header.rank == 1);
    CHECK(back.header.ranks == 3);
    CHECK(back.header.generation == 12);
    CHECK(back.header.set == 0xabcdef);
    CHECK(back.header.sequence == 77);
    REQUIRE(back.tensors.size() == state.tensors.size());
    for (std::size_t i = 0; i < back.tensors.size(); ++i) {
      const SavedTensor &a = state.tensors[i], &b = back.tensors[i];
      CHECK(a.source == b.source);
      CHECK(a.owner == b.owner);
      CHECK(a.name == b.name);
      CHECK(a.kind == b.kind);
      CHECK(a.encoding == b.encoding);
      CHECK(a.count == b.count);
      CHECK(a.turns == b.turns);
      CHECK(a.learning_rate == b.learning_rate);
      CHECK(a.codec == b.codec);
      REQUIRE(a.payload.bytes() == b.payload.bytes());
      CHECK(std::memcmp(a.payload.data(), b.payload.data(), a.payload.bytes()) == 0);
    }
    REQUIRE(back.extents.size() == 1);
    CHECK(back.extents[0].name == "q");
    CHECK(back.extents[0].count == 2);
    CHECK(back.extents[0].cols == 1);
    CHECK(back.extents[0].q_cols == 1);
    CHECK(back.extents[0].calls == 40);
    CHECK(back.extents[0].given);
  }

  // STATE_FORMAT.md, by hand.
  TEST_CASE("bytes are those of the format") {
    SavedState state{{2, 5, 7, 9, 11}, {}, {}};
    state.tensors.push_back(saved_tensor("ab", {1.0f}, FeedbackKind::residual, true));
    const Bytes bytes = written(state);
    REQUIRE(bytes.size() == 64 + 64 + 8 + 8 + 8);
    const auto number = [&](std::size_t at, int width) {
      std::uint64_t n = 0;
      for (int i = width; i-- > 0;) n = n << 8 | bytes[at + static_cast<std::size_t>(i)];
      return n;
    };
    CHECK(std::memcmp(bytes.data(), "CRIMPST\x1a", 8) == 0);
    CHECK(number(8, 4) == 1);
    CHECK(number(12, 4) == 0);
    CHECK(number(16, 4) == 2);
    CHECK(number(20, 4) == 5);
    CHECK(number(24, 8) == 7);
    CHECK(number(32, 8) == 9);
    CHECK(number(40, 4) == 11);
    CHECK(number(44, 4) == 1);
    CHECK(number(48, 8) == bytes.size());
    CHECK(number(56, 8) == digest(bytes.data(), 56));
    CHECK(number(64, 8) == (1 | 1 << 8 | 1 << 16 | 1 << 24));
    CHECK(number(72, 4) == 2);
    CHECK(number(76, 4) == 0);
    CHECK(number(80, 8) == 1);
    CHECK(number(88, 8) == 4);
    CHECK(number(96, 4) == 3);
    CHECK(number(104, 8) == 0);
    CHECK(std::memcmp(bytes.data() + 128, "ab\0\0\0\0\0\0", 8) == 0);
    CHECK(number(136, 8) == 0x3f800000);
    CHECK(number(144, 8) == digest(bytes.data() + 64, 80));
  }

  TEST_CASE("a tensor whose name has no room is left out, and that is said") {
    SavedState state{{0, 1, 1, 1, 1}, {}, {}};
    state.tensors.push_back(saved_tensor(std::string(65535, 'a'), {1}));
    CHECK(read(written(state)).tensors.size() == 1);
    state.tensors.push_back(saved_tensor(std::string(65536, 'a'), {2}));
    state.tensors.push_back(saved_tensor("b", {3}));
    const SavedState back = read(written(state, false));
    REQUIRE(back.tensors.size() == 2);
    CHECK(back.tensors[1].name == "b");
  }

  TEST_CASE("a file that is cut anywhere is refused, and one that is longer") {
    const Bytes whole = written(example());
    for (std::size_t n = 0; n < whole.size(); ++n) {
      const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
      CHECK_THROWS_AS(static_cast<void>(read(cut)), StateError);
      // Also where its header believes the new length.
      if (n < 64) continue;
      Bytes again = cut;
      const std::uint64_t length = n;
      std::memcpy(again.data() + 48, &length, 8);
      reseal(again);
      CHECK_THROWS_AS(static_cast<void>(read(again)), StateError);
    }
    Bytes longer = whole;
    longer.push_back(0);
    CHECK_THROWS_AS(static_cast<void>(read(longer)), StateError);
  }

  TEST_CASE("any changed byte is refused") {
    const Bytes whole = written(example());
    for (std::size_t i = 0; i < whole.size(); ++i)
      for (const int flip : {1, 0x80, 0xff}) {
        Bytes changed = whole;
        changed[i] = static_cast<std::uint8_t>(changed[i] ^ flip);
        CHECK_THROWS_AS(static_cast<void>(read(changed)), StateError);
      }
  }

  // Whoever makes a file up can make its checksums fit. Numbers that would have to be believed are not.
  TEST_CASE("made-up numbers with checksums that fit are refused without taking memory") {
    const Bytes whole = written(example());
    const Random random(99, 1);
    rusage before, after;
    ::getrusage(RUSAGE_SELF, &before);
    int refused = 0, read_all_the_same = 0;
    for (std::uint64_t k = 0; k < 20000; ++k) {
      Bytes changed = whole;
      // In the header of the file, or of the first record, or in its floats.
      const std::size_t at =
          random.bits(3 * k) % 3 == 0 ? 12 + random.bits(3 * k + 1) % 44 : 64 + random.bits(3 * k + 1) % 96;
      const std::uint32_t how = random.bits(3 * k + 2);
      changed[at] = how % 4 == 0 ? 0xff : how % 4 == 1 ? 0x7f : static_cast<std::uint8_t>(how >> 8);
      if (how % 5 == 0)
        for (std::size_t j = at; j < std::min<std::size_t>(at + 8, at < 56 ? 56 : 160); ++j) changed[j] = 0xff;
      reseal(changed);
      const std::uint64_t sum = digest(changed.data() + 64, 64 + 8 + 24);
      std::memcpy(changed.data() + 160, &sum, 8);
      try {
        static_cast<void>(read(changed));
        ++read_all_the_same;
      } catch (const StateError&) {
        ++refused;
      }
    }
    ::getrusage(RUSAGE_SELF, &after);
    CHECK(refused > 5000);
    CHECK(read_all_the_same > 100);  // other ranks, generations, values
#ifndef __SANITIZE_ADDRESS__         // which keeps what is freed for a while
    CHECK(after.ru_maxrss - before.ru_maxrss < 64 * 1024);
#endif
  }

  TEST_CASE("values that nobody can owe are refused") {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(), 0x1p121f}) {
      SavedState state{{0, 1, 1, 0, 0}, {}, {}};
      state.tensors.push_back(saved_tensor("a", {1, value, 2}));
      CHECK_THROWS_AS(static_cast<void>(read(written(state))), StateError);
      state.tensors[0] = in_bytes(saved_tensor("a", {1, 2, 3}));
      std::memcpy(state.tensors[0].payload.data(), &value, sizeof value);
      CHECK_THROWS_AS(static_cast<void>(read(written(state))), StateError);
      state.tensors[0] = with_state("a", 2, {1, 2, value});
      CHECK_THROWS_AS(static_cast<void>(read(written(state))), StateError);
    }
    SavedState negative{{0, 1, 1, 0, 0}, {}, {}};
    negative.tensors.push_back(in_bytes(saved_tensor("a", {1, 2, 3})));
    reinterpret_cast<float*>(negative.tensors[0].payload.data())[0] = -1.0f;
    CHECK_THROWS_AS(static_cast<void>(read(written(negative))), StateError);
    SavedState twice{{0, 1, 1, 0, 0}, {}, {}};
    twice.tensors.push_back(saved_tensor("a", {1}));
    twice.tensors.push_back(saved_tensor("a", {1}));
    CHECK_THROWS_AS(static_cast<void>(read(written(twice))), StateError);
  }

  TEST_CASE("a tensor with fewer values than its elements have is refused") {
    for (const std::size_t values : {1, 2, 4, 5}) {
      SavedState state{{0, 1, 1, 0, 0}, {}, {}};
      state.tensors.push_back(with_state("a", 6, std::vector<float>(values, 1.0f)));
      CHECK_THROWS_WITH_AS(static_cast<void>(read(written(state))), doctest::Contains("length does not fit"),
                           StateError);
    }
  }

  TEST_CASE("what lies elsewhere than in the host's memory is written whole, however long it is") {
    Elsewhere memory;
    for (const std::size_t count : {std::size_t{1}, std::size_t{1} << 18, (std::size_t{5} << 18) / 2 + 3}) {
      std::vector<float> values(count);
      for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
      SavedState state{{0, 1, 1, 0, 0}, {}, {}};
      state.tensors.push_back(saved_tensor("a", values));
      state.tensors[0].payload = memory_of(values, memory);
      CHECK((floats(read(written(state)).tensors.at(0)) == values));
    }
  }

  TEST_CASE("every old rank's part goes to one new rank, whatever their numbers") {
    for (std::uint32_t old = 1; old <= 9; ++old)
      for (std::uint32_t ranks = 1; ranks <= 9; ++ranks) {
        std::vector<int> taken(old);
        for (std::uint32_t r = 0; r < ranks; ++r) {
          const Sources s = sources_of(r, ranks, old);
          REQUIRE(!s.ranks.empty());
          for (const std::uint32_t from : s.ranks) {
            REQUIRE(from < old);
            taken[from] += s.values;
          }
          if (old == ranks) CHECK((s.ranks == std::vector<std::uint32_t>{r} && s.values));
        }
        CHECK(taken == std::vector<int>(old, 1));
      }
  }

  TEST_CASE("what is owed to the sum stays the same with another number of ranks") {
    constexpr std::uint32_t kOld = 4;
    const auto state_of = [](std::uint32_t rank) {
      const auto r = static_cast<float>(rank);
      SavedState state{{rank, kOld, 1, 0, 5}, {}, {}};
      state.tensors.push_back(saved_tensor("a", {1 + r, 2 * r, -r}));
      state.tensors.push_back(
          saved_tensor("a", {0, rank == 1 ? 100.0f : 0, rank == 2 ? 50.0f : 0}, FeedbackKind::residual, true));
      if (rank == 3) state.tensors.push_back(saved_tensor("only owned", {8, 9}, FeedbackKind::residual, true));
      state.tensors.push_back(saved_tensor("m", {r, 1, 10 * r, 10}, FeedbackKind::momentum));
      state.tensors.push_back(saved_tensor("m", {1000, 0}, FeedbackKind::residual, true));
      state.tensors.push_back(with_state("q", 2, {r, 1, 7, 8}));
      return state;
    };
    for (const std::uint32_t ranks : {1u, 2u, 3u, 5u, 8u}) {
      CAPTURE(ranks);
      std::vector<float> a(3), owned(2), m(4), q(2);
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const Sources sources = sources_of(rank, ranks, kOld);
        Redistribution sum(sources.values);
        for (const std::uint32_t r : sources.ranks) sum.add(read(written(state_of(r))));
        const SavedState mine = sum.take();
        CHECK(mine.header.sequence == 5);
        for (const SavedTensor& t : mine.tensors) {
          CHECK_FALSE(t.owner);  // nobody knows whose sums it will own
          const std::vector<float> f = floats(t);
          const auto add = [&](std::vector<float>& to) {
            REQUIRE(f.size() >= to.size());
            for (std::size_t i = 0; i < to.size(); ++i) to[i] += f[i];
          };
          if (t.name == "a") add(a);
          if (t.name == "only owned") add(owned);
          if (t.name == "m") {
            add(m);
            CHECK(t.kind == FeedbackKind::momentum);
          }
          if (t.name == "q") {
            add(q);
            REQUIRE(f.size() == 4);  // what all ranks have alike
            CHECK(f[2] == 7);
            CHECK(f[3] == 8);
          }
        }
      }
      // Over old ranks r = 0..3: r sums to 6.
      CHECK(a == std::vector<float>{4 + 6, 12 + 100, -6 + 50});
      CHECK(owned == std::vector<float>{8, 9});
      CHECK(m == std::vector<float>{6 + 4000, 4, 60, 40});
      CHECK(q == std::vector<float>{6, 4});
    }
  }

  TEST_CASE("residuals of different learning rates are added up in one's units") {
    SavedTensor a = saved_tensor("a", {1}), b = saved_tensor("a", {1});
    a.learning_rate = 0.5, b.learning_rate = 0.125;
    const SavedState mine = sum_of(std::move(a), std::move(b));
    CHECK(floats(mine.tensors[0]) == std::vector<float>{1.25f});  // times 0.5: what 1 * 0.5 + 1 * 0.125 is
  }

  TEST_CASE("a made-up owner's momentum takes no codec's state of a residual, and stays as long as it is") {
    const SavedState mine = sum_of(saved_tensor("a", {1, 2, 3, 10, 20, 30}, FeedbackKind::momentum, true),
                                   with_state("a", 3, {1, 2, 3, 4}));
    REQUIRE(mine.tensors.size() == 1);
    CHECK(floats(mine.tensors[0]) == std::vector<float>{2, 4, 6, 10, 20, 30});
    CHECK(mine.tensors[0].codec.empty());
  }

  TEST_CASE("what has another number of elements on one of the ranks is not added") {
    CHECK(floats(sum_of(saved_tensor("a", {1, 2}), saved_tensor("a", {10, 20, 30})).tensors.at(0)) ==
          std::vector<float>{1, 2});
    CHECK(floats(sum_of(saved_tensor("a", {1, 2}), saved_tensor("a", {10})).tensors.at(0)) == std::vector<float>{1, 2});
  }

  TEST_CASE("averages are added to averages alone; residual and momentum add up in either order") {
    using enum FeedbackKind;
    for (const FeedbackKind kind : {residual, momentum}) {
      const std::vector<float> values = kind == momentum ? std::vector<float>{1, 2, 10, 20} : std::vector<float>{1, 2};
      const SavedState stays = sum_of(saved_tensor("a", values, kind), saved_tensor("a", {5, 6}, average));
      CHECK(stays.tensors.at(0).kind == kind);
      CHECK(floats(stays.tensors[0]) == values);
      const SavedState other = sum_of(saved_tensor("a", {5, 6}, average), saved_tensor("a", values, kind));
      CHECK(other.tensors.at(0).kind == average);
      CHECK(floats(other.tensors[0]) == std::vector<float>{5, 6});
    }
    for (const bool residual_first : {false, true}) {
      SavedTensor r = saved_tensor("a", {5, 6}), m = saved_tensor("a", {1, 2, 10, 20}, momentum);
      const SavedState sum = residual_first ? sum_of(std::move(r), std::move(m)) : sum_of(std::move(m), std::move(r));
      REQUIRE(sum.tensors.size() == 1);
      CHECK(sum.tensors[0].kind == momentum);
      CHECK(floats(sum.tensors[0]) == std::vector<float>{6, 8, 10, 20});
    }
  }
}
