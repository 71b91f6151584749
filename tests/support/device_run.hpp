// Runs device codecs through the CUDA runtime (the executor's stand-in, or a GPU's), from and to host vectors.
#pragma once
#include <bit>
#include <climits>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "codec/device_codec.hpp"
#include "support/cuda_device.hpp"

namespace crimp::test {

inline void cuda(int error, const char* what) {
  if (error != 0)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorName(static_cast<cudaError_t>(error)));
}

// Device memory with the given bytes, `skew` bytes behind an aligned address.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count, std::size_t skew = 0) : count_(count) {
    cuda(cudaMalloc(&memory_, count * sizeof(T) + skew + 1), "cudaMalloc");
    data_ = reinterpret_cast<T*>(static_cast<char*>(memory_) + skew);
  }
  DeviceArray(std::span<const T> from, std::size_t skew = 0) : DeviceArray(from.size(), skew) {
    if (from.empty()) return;
    cuda(cudaMemcpy(data_, from.data(), from.size_bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
    cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");  // of pageable memory it is only on its way
  }
  DeviceArray(const std::vector<T>& from, std::size_t skew = 0) : DeviceArray(std::span<const T>(from), skew) {}
  ~DeviceArray() { cudaFree(memory_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* data() const { return data_; }
  std::vector<T> read(std::size_t count) const {
    std::vector<T> to(count);
    if (count) cuda(cudaMemcpy(to.data(), data_, count * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return to;
  }
  std::vector<T> read() const { return read(count_); }

 private:
  void* memory_ = nullptr;
  T* data_ = nullptr;
  std::size_t count_;
};

// A stream of its own, so that what does not wait for it is wrong.
class TestStream {
 public:
  TestStream() { cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  ~TestStream() { cudaStreamDestroy(stream_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  operator cudaStream_t() const { return stream_; }
  void wait() const { cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_;
};

// The memory of a chunk: arrays of partition.count() floats; empty: none. Encoding updates them in place.
struct ChunkMemory {
  std::vector<float> plane, momentum;
  bool keep = true, has = true;    // keep: is written; has: is read
  std::vector<float> states = {};  // of each group, behind one another; read and written
  bool alternate = false;          // every second group has none
};

// What ChunkPartitions look like on the device.
class DeviceTable {
 public:
  explicit DeviceTable(ChunkArrays arrays)
      : arrays_(std::move(arrays)), pieces_(arrays_.pieces), groups_(arrays_.groups), jobs_(arrays_.jobs),
        table_(arrays_.table) {
    table_.pieces = pieces_.data();
    table_.groups = groups_.data();
    table_.jobs = jobs_.data();
  }
  const ChunkTable& operator*() const { return table_; }

 private:
  ChunkArrays arrays_;
  DeviceArray<PieceEntry> pieces_;
  DeviceArray<GroupEntry> groups_;
  DeviceArray<JobEntry> jobs_;
  ChunkTable table_;
};

// skew: elements by which arrays of them are off 16 bytes. `values` are the host's, partition.count() of them.
inline std::vector<std::uint8_t> device_encode(const Codec& codec, const DeviceCodec& device,
                                               const ChunkPartition& partition, ConstValues values, ChunkMemory& memory,
                                               const RandomCounter& counter, std::size_t skew = 0) {
  cuda(device.load(), "load");
  const TestStream stream;
  const std::size_t element = size_of(values.type);
  const DeviceArray<std::uint8_t> in(
      std::span(static_cast<const std::uint8_t*>(values.at), partition.count() * element), element * skew);
  const DeviceArray<float> plane(memory.plane, 4 * skew), momentum(memory.momentum, 4 * skew), states(memory.states);
  std::vector<FeedbackView> feedback;
  if (!memory.plane.empty())
    for (const Group& g : partition.groups()) {
      if (memory.alternate && feedback.size() % 2) {
        feedback.emplace_back();
        continue;
      }
      float *r = plane.data() + g.offset, *m = memory.momentum.empty() ? nullptr : momentum.data() + g.offset;
      feedback.push_back(
          {memory.has ? r : nullptr, memory.keep ? r : nullptr, memory.has ? m : nullptr, memory.keep ? m : nullptr});
      if (!memory.states.empty())
        feedback.back().state_in = feedback.back().state_out =
            states.data() + Codec::kStateFloats * (feedback.size() - 1);
    }
  const DeviceArray<std::uint8_t> body(partition.body_bound(codec));
  const DeviceTable table(ChunkArrays(codec, {partition, 0, feedback, body.data()}));
  const DeviceArray<std::uint8_t> scratch(device.scratch_bytes(*table));
  const DeviceArray<std::uint64_t> bytes(std::vector<std::uint64_t>{0});
  cuda(device.encode(*table, {in.data(), values.type}, counter, bytes.data(), scratch.data(), stream), "encode");
  stream.wait();
  if (!memory.plane.empty()) memory.plane = plane.read();
  if (!memory.momentum.empty()) memory.momentum = momentum.read();
  if (!memory.states.empty()) memory.states = states.read();
  return body.read(bytes.read()[0]);
}

inline std::vector<std::uint8_t> device_encode(const Codec& codec, const DeviceCodec& device,
                                               const ChunkPartition& partition, std::span<const float> values,
                                               ChunkMemory& memory, const RandomCounter& counter,
                                               std::size_t skew = 0) {
  return device_encode(codec, device, partition, ConstValues(values.data()), memory, counter, skew);
}

// `out` as it was, and as it is then: partition.count() elements of a type; which body is bad, -1: none.
struct DeviceBytes {
  std::vector<std::uint8_t> out;
  int bad;
};
struct DeviceSum {
  std::vector<float> out;
  int bad;
};
// Additions of a GPU make one NaN of all NaNs, those of the executor, which are the host's, keep which one it was. Sums
// here are as the GPU might return them, so that a comparison that would fail there does here.
inline void forget_which_nan(std::vector<float>& sums) {
  for (float& x : sums)
    if (!kRealDevice && x != x) x = std::bit_cast<float>(0x7fffffffu);
}
inline DeviceBytes device_decode_to(Dtype type, const Codec& codec, const DeviceCodec& device,
                                    const ChunkPartition& partition, std::span<const std::vector<std::uint8_t>> bodies,
                                    const RandomCounter& counter, std::vector<std::uint8_t> out, bool accumulate,
                                    int voters = 0, std::size_t skew = 0) {
  cuda(device.load(), "load");
  const TestStream stream;
  const DeviceTable table(ChunkArrays(codec, {partition}));
  std::vector<std::unique_ptr<DeviceArray<std::uint8_t>>> copies;
  std::vector<std::unique_ptr<DeviceArray<std::uint64_t>>> offset_copies;
  std::vector<const std::uint8_t*> pointers;
  std::vector<const std::uint64_t*> offset_pointers;
  for (const auto& body : bodies) {
    copies.push_back(std::make_unique<DeviceArray<std::uint8_t>>(body));
    pointers.push_back(copies.back()->data());
    if (codec.traits().fixed_size) continue;
    BodyView view;
    if (const std::string wrong = view.open(codec, partition, body); !wrong.empty()) throw std::runtime_error(wrong);
    std::vector<std::uint64_t> offsets;
    for (std::size_t p = 0; p < partition.pieces().size(); ++p)
      offsets.push_back(static_cast<std::uint64_t>(view.piece(p).data() - body.data()));
    offsets.push_back(partition.pieces().empty() ? 0
                                                 : offsets.back() + view.piece(partition.pieces().size() - 1).size());
    offset_copies.push_back(std::make_unique<DeviceArray<std::uint64_t>>(offsets));
    offset_pointers.push_back(offset_copies.back()->data());
  }
  const DeviceArray<const std::uint8_t*> body_array(pointers);
  const DeviceArray<const std::uint64_t*> offset_array(offset_pointers);
  const DeviceArray<std::uint8_t> sum(out, size_of(type) * skew);
  const DeviceArray<std::int32_t> bad(std::vector<std::int32_t>{INT_MAX});
  cuda(device.decode_add(*table,
                         {body_array.data(), offset_pointers.empty() ? nullptr : offset_array.data(),
                          static_cast<int>(bodies.size())},
                         counter, {sum.data(), type}, accumulate, voters, bad.data(), stream),
       "decode_add");
  stream.wait();
  const std::int32_t worst = bad.read()[0];
  return {sum.read(), worst == INT_MAX ? -1 : worst};
}
inline DeviceSum device_decode_add(const Codec& codec, const DeviceCodec& device, const ChunkPartition& partition,
                                   std::span<const std::vector<std::uint8_t>> bodies, const RandomCounter& counter,
                                   std::vector<float> out, bool accumulate, int voters = 0, std::size_t skew = 0) {
  std::vector<std::uint8_t> raw(out.size() * sizeof(float));
  if (!out.empty()) std::memcpy(raw.data(), out.data(), raw.size());
  const DeviceBytes sums =
      device_decode_to(Dtype::f32, codec, device, partition, bodies, counter, std::move(raw), accumulate, voters, skew);
  if (!out.empty()) std::memcpy(out.data(), sums.out.data(), sums.out.size());
  forget_which_nan(out);
  return {std::move(out), sums.bad};
}

}  // namespace crimp::test
