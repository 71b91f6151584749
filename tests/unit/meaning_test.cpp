// What a result means, for every codec of this build under every algorithm that takes it: the sum's expectation where
// the codec is unbiased, the majority where it votes, nothing lost where residuals are kept, and no more error than the
// algorithm says of the codec. Expectations are sums in float64.
#include <doctest/doctest.h>

#include <cmath>
#include <mutex>

#include "support/data.hpp"
#include "support/effort.hpp"
#include "support/sanitized.hpp"
#include "support/sum.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("meaning") {
  namespace {

  using Tensors = std::vector<std::size_t>;
  std::size_t elements(const Tensors& tensors) {
    std::size_t n = 0;
    for (const std::size_t t : tensors) n += t;
    return n;
  }

  // What rank r gives in a step.
  using Give = std::function<std::vector<float>(int step, int rank)>;

  // One codec's sums over many steps.
  struct Course {
    std::vector<std::vector<float>> results;  // of each step, equal on all ranks
    std::vector<double> exact, held;          // over all steps: what was given; what the memories hold at the end
  };
  Course run(const Way& way, int ranks, const Codec& codec, const Tensors& tensors, int steps, const Give& give) {
    const std::size_t count = elements(tensors);
    Course course{std::vector<std::vector<float>>(static_cast<std::size_t>(steps)), std::vector<double>(count),
                  std::vector<double>(count)};
    std::vector<std::vector<std::vector<float>>> results(static_cast<std::size_t>(ranks));
    std::mutex mutex;
    run_sums(way, ranks, codec, tensors, [&](int rank, Sum& sum) {
      std::vector<double> given(count);
      bool good = true;
      for (int step = 0; step < steps; ++step) {
        auto values = give(step, rank);
        for (std::size_t i = 0; i < count; ++i) given[i] += static_cast<double>(values[i]);
        good = sum(values.data()) && good;
        results[static_cast<std::size_t>(rank)].push_back(std::move(values));
      }
      const std::lock_guard lock(mutex);
      CHECK(good);
      for (std::size_t i = 0; i < count; ++i) course.exact[i] += given[i];
      sum.add_held(course.held.data());
    });
    for (const auto& of : results) CHECK(of == results[0]);
    course.results = std::move(results[0]);
    return course;
  }

  double squares(const std::vector<double>& v) {
    double sum = 0;
    for (const double x : v) sum += x * x;
    return sum;
  }

  // Of a registry codec: itself, and settings that make what is tested visible in few steps.
  std::vector<std::string> specs_of(const CodecInfo& info) {
    const std::string name(info.name);
    if (name == "randomk") return {name, "randomk:ratio=0.25,scale=1"};
    if (name == "qsgd") return {name, "qsgd:s=3,bucket=128"};
    if (name == "maxmin") return {name, "maxmin:bits=2"};
    if (name == "3lc") return {name, "3lc:s=0.5,entropy=1"};
    if (name == "topk") return {name, "topk:ratio=0.1,value=f16,reuse=3"};
    return {name};
  }
  std::vector<std::shared_ptr<const Codec>> codecs_with(const char* memory = nullptr) {
    std::vector<std::shared_ptr<const Codec>> all;
    for (const auto& info : codecs())
      for (const auto& spec : specs_of(info))
        all.push_back(make_codec(
            spec + (memory ? (spec.find(':') == spec.npos ? ":memory=" : ",memory=") + std::string(memory) : "")));
    return all;
  }

  // Of up to 5 ranks in up to kSteps steps: windows of one row of random numbers, each 1009 further, so that element
  // for element they are independent.
  constexpr int kSteps = 72;
  std::vector<float> gradient(int step, int rank, std::size_t count) {
    constexpr std::size_t kMost = 41000, kApart = 1009;
    static const auto row = [] {
      auto v = make_data(Data::laplace, 1, kMost + 5 * kSteps * kApart);
      for (float& x : v) x *= 0x1p-7f;
      return v;
    }();
    const auto begin = row.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(step * 5 + rank) * kApart);
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
  }

  }  // namespace

  TEST_CASE("unbiased codecs: the expectation of the result is the sum") {
    const int steps = kSanitized ? 24 : 64;
    std::vector<std::shared_ptr<const Codec>> unbiased;
    for (const auto& info : codecs()) {
      const std::string name(info.name);
      for (std::string spec : specs_of(info)) {
        if (name == "terngrad") spec = "terngrad:clip=1e6";  // what is clipped is biased
        if (name == "thc") spec = "thc:clip=4096,memory=none";
        if (const auto codec = make_codec(spec); !codec->traits().biased) unbiased.push_back(codec);
      }
    }
    CHECK(unbiased.size() >= 12);
    Turns turns(7, 7, 41);
    for (const auto& codec : unbiased)
      for (const int ranks : {1, 2, 3, 4, 5}) {
        const Tensors tensors = ranks % 2 ? Tensors{1537, 33, 1, 800} : Tensors{1024, 1024};
        const std::size_t count = elements(tensors);
        for (const Way& way : ways_of(*codec, ranks)) {
          if (!turns.next()) continue;
          CAPTURE(codec->spec());
          CAPTURE(ranks);
          CAPTURE(text_of(way));
          const Course course =
              run(way, ranks, *codec, tensors, steps, [&](int, int rank) { return gradient(0, rank, count); });
          // Of an element over the steps: mean and variance. off: of the mean from the sum; in the sum's direction,
          // which shows a wrong scale best.
          double off = 0, expected_off = 0, along = 0, along_variance = 0, energy = 0;
          for (std::size_t i = 0; i < count; ++i) {
            const double sum = course.exact[i] / steps;
            double mean = 0, variance = 0;
            for (const auto& result : course.results) mean += static_cast<double>(result[i]) / steps;
            for (const auto& result : course.results)
              variance += std::pow(static_cast<double>(result[i]) - mean, 2) / (steps - 1);
            off += (mean - sum) * (mean - sum);
            expected_off += variance / steps;
            along += (mean - sum) * sum;
            along_variance += variance / steps * sum * sum;
            energy += sum * sum;
          }
          // Codecs that round to nearest have no variance: what they may be off by is theirs (half an 8-bit float's
          // last place, once more with two shots).
          const bool random = expected_off > 1e-12 * energy;
          CHECK(off <= (random ? 1.4 * expected_off + 1e-9 * energy : 4e-3 * energy));
          CHECK(std::fabs(along) <= 5 * std::sqrt(along_variance) + (random ? 1e-4 : 1e-2) * energy);
        }
      }
  }

  TEST_CASE(
      "votes: the majority of all ranks times their number, 0 in a tie, and zeros of all ranks stay zeros, under every algorithm") {
    int tested = 0;
    Turns turns(4, 4, 11);
    for (const auto& info : codecs()) {
      if (!info.traits.votes) continue;
      // Averages with 1/2 of small whole numbers are exact.
      const auto codec =
          make_codec(info.traits.memory == FeedbackKind::average ? std::string(info.name) + ":momentum=0.5"
                                                                 : std::string(info.name));
      CHECK(codec->traits().votes);
      CHECK(entry_of(Algorithm::hierarchical).why_unsupported(*codec, 4).find("votes") != std::string::npos);
      for (const int ranks : {1, 2, 3, 4, 5})
        for (const Tensors& tensors : {Tensors{40000}, Tensors{10240, 10240}, Tensors{7, 1, 12345}})
          for (const Way& way : ways_of(*codec, ranks)) {
            if (!turns.next()) continue;
            CAPTURE(codec->spec());
            CAPTURE(ranks);
            CAPTURE(text_of(way));
            ++tested;
            const std::size_t count = elements(tensors);
            const auto give = [&](int step, int rank) {
              std::vector<float> v(count);
              for (std::size_t i = 0; i < count; ++i)
                if (i % 5)
                  v[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * (1 + i % 3) +
                                             static_cast<std::size_t>(step) * i) %
                                            3) -
                         1;  // -1, 0, +1
              return v;
            };
            const int steps = 3;
            const Course course = run(way, ranks, *codec, tensors, steps, give);
            std::vector<std::vector<double>> average(static_cast<std::size_t>(ranks), std::vector<double>(count));
            for (int step = 0; step < steps; ++step) {
              std::vector<int> votes(count);
              for (int rank = 0; rank < ranks; ++rank) {
                const auto g = give(step, rank);
                for (std::size_t i = 0; i < count; ++i) {
                  double& m = average[static_cast<std::size_t>(rank)][i];
                  m = codec->feedback().kind == FeedbackKind::average ? m / 2 + static_cast<double>(g[i]) / 2
                                                                      : static_cast<double>(g[i]);
                  votes[i] += m > 0 ? 1 : m < 0 ? -1 : 0;
                }
              }
              std::size_t wrong = 0;
              for (std::size_t i = 0; i < count; ++i)
                wrong += course.results[static_cast<std::size_t>(step)][i] != static_cast<float>(votes[i] > 0   ? ranks
                                                                                                 : votes[i] < 0 ? -ranks
                                                                                                                : 0);
              CHECK(wrong == 0);
            }
          }
    }
    CHECK(tested >= 2 * 5 * 3 * 2 / turns.every());
  }

  TEST_CASE("with error feedback results and what memories hold make up what was given, under every algorithm") {
    auto all = codecs_with();
    for (const char* spec : {"dgc:momentum=0,ratio=0.1", "3lc:memory=momentum,momentum=0", "fp16:memory=residual",
                             "qsgd:memory=residual,force=1", "maxmin:memory=residual,rounding=nearest",
                             "randomk:ratio=0.1", "powersgd:r=2,min=100"})
      all.push_back(make_codec(spec));
    int tested = 0;
    Turns turns(7, 7, 41);
    for (const auto& codec : all) {
      const FeedbackPolicy& memory = codec->feedback();
      if (!(memory.kind == FeedbackKind::residual || (memory.kind == FeedbackKind::momentum && memory.momentum == 0)))
        continue;
      for (const int ranks : {1, 2, 3, 4, 5}) {
        const Tensors tensors = ranks % 2 ? Tensors{21000, 1, 333} : Tensors{20480, 20480};
        const std::size_t count = elements(tensors);
        for (const Way& way : ways_of(*codec, ranks)) {
          CAPTURE(codec->spec());
          CAPTURE(ranks);
          CAPTURE(text_of(way));
          if (!turns.next()) continue;
          ++tested;
          const Course course =
              run(way, ranks, *codec, tensors, 4, [&](int step, int rank) { return gradient(step, rank, count); });
          std::vector<double> lost = course.exact;
          for (std::size_t i = 0; i < count; ++i) {
            lost[i] -= course.held[i];
            for (const auto& result : course.results) lost[i] -= static_cast<double>(result[i]);
          }
          CHECK(squares(lost) <= 1e-9 * squares(course.exact));
        }
      }
    }
    CHECK(tested > 100 / turns.every());
  }

  TEST_CASE("zeros of all ranks are zeros in the result, for every codec under every algorithm") {
    Turns turns(7, 7, 41);
    for (const auto& codec : codecs_with())
      for (const int ranks : {1, 2, 3, 5})
        for (const Way& way : ways_of(*codec, ranks)) {
          if (!turns.next()) continue;
          CAPTURE(codec->spec());
          CAPTURE(ranks);
          CAPTURE(text_of(way));
          const Course course =
              run(way, ranks, *codec, {11000, 5}, 2, [&](int, int) { return std::vector<float>(11005); });
          for (const auto& result : course.results) CHECK(result == std::vector<float>(11005));
        }
  }

  TEST_CASE("what an algorithm says of a codec's error is about what it is") {
    const int ranks = 4;
    auto all = codecs_with();
    for (const char* spec : {"3lc:s=0.75", "3lc:s=1.25", "terngrad:clip=1e6", "qsgd:s=7", "thc:memory=none",
                             "thc:bits=2,g=3,memory=none", "maxmin:bits=8", "topk:ratio=0.1"})
      all.push_back(make_codec(spec));
    for (const auto& codec : all) {
      if (kSanitized && codec->spec() != make_codec("3lc")->spec()) continue;
      const bool returned = codec->feedback().kept() && !codec->traits().votes;
      const Tensors tensors{20480};
      // With memories: the norm of what they hold, over the second half of the steps; else the squared error.
      const auto error = [&](const Way& way) {
        const std::size_t count = elements(tensors);
        const int steps = returned ? kSteps : 3;
        const Course course =
            run(way, ranks, *codec, tensors, steps, [&](int step, int rank) { return gradient(step, rank, count); });
        if (returned) return std::sqrt(squares(course.held));
        std::vector<double> off = course.exact;
        for (const auto& result : course.results)
          for (std::size_t i = 0; i < count; ++i) off[i] -= static_cast<double>(result[i]);
        return squares(off);
      };
      if (codec->traits().votes || codec->traits().whole_tensors || std::string(codec->traits().name) == "fp32")
        continue;  // exact, or one algorithm
      const double once = error({Algorithm::allgather});
      for (const Way& way : ways_of(*codec, ranks)) {
        if (way.algorithm == Algorithm::allgather && way.per_node != 2) continue;
        if (way.per_node == 4) continue;
        CAPTURE(codec->spec());
        CAPTURE(text_of(way));
        const double said = entry_of(way.algorithm).error(*codec, ranks), is = error(way) / once;
        MESSAGE(codec->spec() << " by " << text_of(way) << ": " << is << ", said " << said);
        CHECK(is <= 1.15 * said);
        if (way.per_node == 0) CHECK(is >= 0.5 * said);
      }
    }
  }

  TEST_CASE("what cannot be run says why") {
    for (const auto& codec : codecs_with())
      for (const auto& entry : algorithms()) {
        const std::string why = entry.why_unsupported(*codec, 4);
        CAPTURE(codec->spec());
        CAPTURE(entry.name);
        CHECK((why.empty() || why.size() > 20));
        if (why.empty()) CHECK(entry.error(*codec, 4) >= 1);
      }
  }
}
