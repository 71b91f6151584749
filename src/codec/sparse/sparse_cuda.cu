#include "codec/device_registry.hpp"
#include "codec/sparse/dgc_kernels.cuh"
#include "codec/sparse/sidco_kernels.cuh"
#include "codec/sparse/sparse_kernels.cuh"
#include "codec/sparse/topk_kernels.cuh"

namespace crimp {
namespace sparse {

template <std::uint32_t threads>
__global__ void __launch_bounds__(threads) set_limits(ChunkTable table, float limit, Selection* selections) {
  const std::uint32_t g = blockIdx.x * threads + threadIdx.x;
  if (g < table.group_count) selections[g] = {limit, limit, 0, 0};
}

namespace {

Device device_of(const Codec& codec, Method method) {
  Device device{};
  device.method = method;
  device.half = codec.parameter(kValue) == ValueType::f16;
  if (method != Method::threshold) device.ratio = codec.parameter(kRatio);
  return device;
}

}  // namespace

std::size_t Device::select_bytes(const ChunkTable& t) const {
  if (method == Method::threshold) return 0;
  return select::Scratch::bytes(t) + (method == Method::sidco ? sidco::Estimates::bytes(t)
                                      : method == Method::dgc ? dgc::Trials::bytes(t)
                                      : reuse > 1             ? topk::reaching_bytes(t)
                                                              : 0);
}

// Estimates settle the groups that they can, the exact selection the others.
int Device::select(const device::Source& source, const RandomCounter& counter, Selection* selections, void* scratch,
                   Stream s) const {
  const ChunkTable& t = source.table;
  if (method == Method::threshold) {
    constexpr auto set_all = &set_limits<128>;
    return device::launch<set_all>((t.group_count + 127) / 128, 128, 0, s, t, limit, selections);
  }
  const select::Scratch room(t, scratch);
  void* more = static_cast<std::uint8_t*>(scratch) + select::Scratch::bytes(t);
  if (reuse > 1) return topk::find_again(source, ratio, reuse, room, static_cast<std::uint32_t*>(more), selections, s);
  const bool estimates_first = method == Method::sidco || (method == Method::dgc && sample < 1.0f);
  if (!estimates_first) return select::find_largest(source, ratio, true, room, selections, s);
  int e = select::begin_groups(t, ratio, room, selections, s);
  if (e) return e;
  if (method == Method::dgc)
    e = dgc::try_samples(source, counter, ratio, sample, room, dgc::Trials(more), selections, s);
  if (method == Method::sidco) {
    const sidco::Estimates estimates(t, more);
    const auto run = [&](auto kind) {
      return sidco::estimate<kind>(source, ratio, stages, room, estimates, selections, s);
    };
    e = tail == Tail::exponential ? run(std::integral_constant<Tail, Tail::exponential>())
        : tail == Tail::pareto    ? run(std::integral_constant<Tail, Tail::pareto>())
                                  : run(std::integral_constant<Tail, Tail::gamma>());
  }
  return e ? e : select::find_largest(source, ratio, false, room, selections, s);
}

}  // namespace sparse

std::unique_ptr<DeviceCodec> threshold_device(const Codec& codec) {
  sparse::Device device = sparse::device_of(codec, sparse::Method::threshold);
  device.limit = codec.parameter(sparse::kLimit);
  return device::piece_codec(codec, device);
}
std::unique_ptr<DeviceCodec> topk_device(const Codec& codec) {
  sparse::Device device = sparse::device_of(codec, sparse::Method::topk);
  device.reuse = static_cast<float>(codec.parameter(sparse::kReuse));
  return device::piece_codec(codec, device);
}
std::unique_ptr<DeviceCodec> dgc_device(const Codec& codec) {
  if (codec.parameter(sparse::kWarmup) > 0) return nullptr;
  sparse::Device device = sparse::device_of(codec, sparse::Method::dgc);
  device.sample = codec.parameter(sparse::kSample);
  return device::piece_codec(codec, device);
}
std::unique_ptr<DeviceCodec> sidco_device(const Codec& codec) {
  sparse::Device device = sparse::device_of(codec, sparse::Method::sidco);
  device.tail = codec.parameter(sparse::kTail);
  device.stages = codec.parameter(sparse::kStages);
  return device::piece_codec(codec, device);
}

}  // namespace crimp
