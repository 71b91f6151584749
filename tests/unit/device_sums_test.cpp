// The steps of integer sums on a device against those on the host, step by step and bit for bit: norms, indices, what
// is left in memories, integers, packed sums and decoded values; through the executor (unit.device_sums) or on a GPU.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "codec/device_sums.hpp"
#include "codec/registry.hpp"
#include "memory/workers.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/device_run.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("device_sums") {
  namespace {

  constexpr RandomCounter kCounter{3 * kPieceElements, 5, 2};

  struct Groups {
    std::vector<std::size_t> counts;
    std::size_t gap;
  };

  // A chunk of several groups, as the pipeline lays it out: values, memory and out are as long as the call.
  struct Steps {
    Steps(const std::string& spec, const Groups& groups) : codec(make_codec(spec)), of(*codec->homomorphic()) {
      std::uint64_t norm = 0;
      for (const std::size_t n : groups.counts) {
        for (std::size_t at = 0; at < n; at += kPieceElements) {
          const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(kPieceElements, n - at));
          pieces.push_back({elements + at, nullptr, nullptr, coordinates, count, static_cast<std::uint32_t>(norm)});
          norm += of.norm_count(count);
          coordinates += of.coordinates(count);
        }
        elements += n + groups.gap;
      }
      norms = norm;
      coordinates = round_up(coordinates, kSumUnit);
    }
    std::vector<SumPiece> at(float* residual, bool has, bool keep) const {
      std::vector<SumPiece> all = pieces;
      for (SumPiece& p : all)
        p.residual_in = has ? residual + p.offset : nullptr, p.residual_out = keep ? residual + p.offset : nullptr;
      return all;
    }
    std::size_t index_bytes(std::uint64_t n) const { return n * of.index_bits() / 8; }

    std::shared_ptr<const Codec> codec;
    const Homomorphic& of;
    std::vector<SumPiece> pieces;
    std::uint64_t elements = 0, norms = 0, coordinates = 0;
  };

  std::unique_ptr<DeviceSums> loaded(const Codec& codec) {
    auto device = make_device_sums(codec);
    REQUIRE(device);
    cuda(device->load(), "load");
    return device;
  }

  // Norms and indices of one rank, whose norms are shared with another of larger ones. skew: of values and memory.
  std::vector<std::uint8_t> check_encode(const Steps& s, Data data, bool has, bool keep, std::size_t skew) {
    Workers workers(1);
    const auto host = host_sum_steps(*s.codec, workers);
    const auto device = loaded(*s.codec);
    auto values = make_data(data, 3, s.elements), residual = make_data(Data::normal, 4, s.elements);
    for (float& x : values)
      if (!(std::abs(x) <= 0x1p90f)) x = 1.0f;
    std::vector<float> norms(s.norms), out;
    std::vector<std::uint8_t> indices(s.index_bytes(s.coordinates), 0xee);

    const TestStream stream;
    const DeviceArray<float> values_there(values, 4 * skew), residual_there(residual, 4 * skew);
    const DeviceArray<float> norms_there(norms);
    const DeviceArray<SumPiece> pieces_there(s.at(residual_there.data(), has, keep));
    const DeviceArray<std::uint8_t> indices_there(indices);
    const SumChunk there{{pieces_there.data(), s.pieces.size()}, values_there.data(), nullptr, kCounter};
    const auto pieces = s.at(residual.data(), has, keep);
    const SumChunk here{pieces, values.data(), nullptr, kCounter};

    host->norms(here, norms.data(), {});
    cuda(device->norms(there, norms_there.data(), stream), "norms");
    stream.wait();
    CHECK(difference(norms_there.read(), norms) == "");
    for (std::size_t i = 0; i < norms.size(); ++i)
      if (i % 3 == 1) norms[i] = 1.5f * std::fmin(norms[i] + 1.0f, 0x1p100f);
    const DeviceArray<float> shared_there(norms);
    host->encode(here, norms.data(), s.coordinates, indices.data(), {});
    cuda(device->encode(there, shared_there.data(), s.coordinates, indices_there.data(), stream), "encode");
    stream.wait();
    CHECK(difference(indices_there.read(), indices) == "");
    CHECK(difference(residual_there.read(), residual) == "");
    return indices;
  }

  // Integers of a rank's indices, of either size.
  template <class Integer>
  void check_integers(const Steps& s, const std::vector<std::uint8_t>& indices) {
    Workers workers(1);
    const auto device = loaded(*s.codec);
    const DeviceArray<std::uint8_t> indices_there(indices);
    std::vector<Integer> integers(s.coordinates);
    const DeviceArray<Integer> integers_there(integers);
    host_sum_steps(*s.codec, workers)
        ->integers(indices.data(), s.coordinates, static_cast<int>(sizeof(Integer)), integers.data());
    cuda(device->integers(indices_there.data(), s.coordinates, static_cast<int>(sizeof(Integer)), integers_there.data(),
                          nullptr),
         "integers");
    CHECK(integers_there.read() == integers);
  }

  // Shares of so many ranks are added, packed, unpacked and decoded.
  void check_sums(const Steps& s, std::uint32_t ranks, unsigned seed) {
    CAPTURE(ranks);
    Workers workers(1);
    const auto host = host_sum_steps(*s.codec, workers);
    const auto device = loaded(*s.codec);
    const std::uint32_t most = ranks * s.of.granularity();
    const int width = std::bit_width(most);
    const std::uint64_t stride = 64 + round_up(s.index_bytes(s.coordinates), 64);
    std::mt19937 random(seed);
    std::vector<std::uint8_t> indices(ranks * stride);
    for (auto& x : indices) x = static_cast<std::uint8_t>(random());
    std::vector<std::uint16_t> sums(s.coordinates);
    std::vector<std::uint8_t> packed(s.coordinates * static_cast<std::uint64_t>(width) / 8);
    const DeviceArray<std::uint8_t> indices_there(indices), packed_there(packed);
    host->add({indices.data() + 64, stride, ranks}, s.coordinates, width, sums.data(), packed.data(), {});
    cuda(device->add({indices_there.data() + 64, stride, ranks}, s.coordinates, width, packed_there.data(), nullptr),
         "add");
    CHECK(difference(packed_there.read(), packed) == "");

    // As shares of several owners, with room between them; two sums are more than ranks can have.
    const std::uint32_t shares = ranks < 40 ? ranks : 40;
    const std::uint64_t share_stride = 64 + packed.size();
    std::vector<std::uint8_t> frames(shares * share_stride, 0xcc);
    for (std::uint32_t r = 0; r < shares; ++r) {
      const auto begin = share_begin(s.coordinates, r, shares) * static_cast<std::uint64_t>(width) / 8,
                 end = share_begin(s.coordinates, r + 1, shares) * static_cast<std::uint64_t>(width) / 8;
      if (begin < end) std::memcpy(frames.data() + r * share_stride, packed.data() + begin, end - begin);
    }
    for (const bool beyond : {false, true}) {
      if (beyond)
        for (std::uint64_t i = 0; i < 16 * static_cast<std::uint64_t>(width); ++i)
          frames[(shares - 1) * share_stride + i] = 0xff;
      const std::uint32_t limit = beyond ? (1u << width) - 2 : most;
      std::vector<std::uint32_t> largest(shares), nothing(shares);
      const DeviceArray<std::uint8_t> frames_there(frames);
      const DeviceArray<std::uint16_t> sums_there(s.coordinates);
      const DeviceArray<std::uint32_t> largest_there(largest);
      host->unpack({frames.data(), share_stride, shares, width}, s.coordinates, limit, sums.data(), largest.data());
      cuda(device->unpack({frames_there.data(), share_stride, shares, width}, s.coordinates, limit, sums_there.data(),
                          largest_there.data(), nullptr),
           "unpack");
      CHECK(sums_there.read() == sums);
      CHECK(largest_there.read() == largest);
      if (beyond) CHECK((s.coordinates / kSumUnit < shares || largest[shares - 1] == (1u << width) - 1));
      else CHECK(largest == nothing);
    }

    std::vector<float> norms(s.norms), out(s.elements, 5.0f);
    for (std::size_t i = 0; i < norms.size(); ++i) norms[i] = i % 5 == 3 ? 0.0f : 0.5f + static_cast<float>(i);
    const DeviceArray<float> norms_there(norms), out_there(out, 4 * (ranks % 4));
    const DeviceArray<SumPiece> pieces_there(s.pieces);
    const DeviceArray<std::uint16_t> sums_there(sums);
    host->decode({s.pieces, nullptr, out.data(), kCounter}, sums.data(), norms.data(), static_cast<int>(ranks), {});
    cuda(device->decode({{pieces_there.data(), s.pieces.size()}, nullptr, out_there.data(), kCounter},
                        sums_there.data(), norms_there.data(), static_cast<int>(ranks), nullptr),
         "decode");
    CHECK(difference(out_there.read(), out) == "");
    // On the host also past the caches, wherever it lies.
    std::vector<float> streamed(s.elements + 1, 5.0f);
    host->decode({s.pieces, nullptr, streamed.data() + 1, kCounter, true}, sums.data(), norms.data(),
                 static_cast<int>(ranks), {});
    CHECK(std::memcmp(streamed.data() + 1, out.data(), out.size() * sizeof(float)) == 0);
    CHECK(streamed[0] == 5.0f);
  }

  }  // namespace

  TEST_CASE("sums of integers: norms, indices and what is left, for all data, awkward counts and gaps") {
    for (const char* spec : {"thc", "thc:bits=3,g=17", "thc:bits=2,g=62,memory=none"})
      for (const Groups& groups : {Groups{{kPieceElements + 1, 129, 1, 3 * 1024 + 500}, 3}, Groups{{1027}, 0}}) {
        const Steps s(spec, groups);
        CAPTURE(std::string(spec));
        for (const Data data : kAllData)
          check_encode(s, data, data != Data::zeros, true, static_cast<std::size_t>(data) % 4);
        const auto indices = check_encode(s, Data::normal, false, false, 0);
        check_encode(s, Data::normal, true, false, 1);
        check_encode(s, Data::normal, false, true, 0);
        check_integers<std::uint8_t>(s, indices);
        check_integers<std::uint16_t>(s, indices);
        CHECK(simt::take_reports() == "");
      }
  }
  TEST_CASE("sums of integers: added, packed in every width, unpacked and decoded") {
    for (const char* spec : {"thc:bits=4,g=15", "thc:bits=3,g=62", "thc:bits=2,g=3"}) {
      CAPTURE(std::string(spec));
      const Steps s(spec, {{kPieceElements + 300, 5, 2500}, 2});
      for (std::uint32_t ranks = 1, i = 0; ranks * s.of.granularity() <= Homomorphic::kMostSum && ranks < 600; ++i) {
        check_sums(s, ranks, i);
        ranks += 1 + ranks * (i % 3 + 1) / 2;
      }
      CHECK(simt::take_reports() == "");
    }
  }
}
