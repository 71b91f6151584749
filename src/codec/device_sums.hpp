// The steps of integer sums (codec/sum_steps.hpp) in device memory, enqueued on a stream: as codec/device_codec.hpp has
// it for encoding and decoding. Pieces are a table in device memory, `count` of them; pointers are aligned to 16 bytes
// but for values, memories and out.
#pragma once
#include "codec/device_codec.hpp"
#include "codec/sum_steps.hpp"

namespace crimp {

class DeviceSums {
 public:
  virtual ~DeviceSums() = default;
  virtual int norms(const SumChunk&, float* norms, Stream) const = 0;
  virtual int encode(const SumChunk&, const float* norms, std::uint64_t coordinates, std::uint8_t* indices,
                     Stream) const = 0;
  virtual int decode(const SumChunk&, const std::uint16_t* sums, const float* norms, int ranks, Stream) const = 0;
  virtual int integers(const std::uint8_t* indices, std::uint64_t coordinates, int bytes, void* to, Stream) const = 0;
  virtual int add(const IndexShares&, std::uint64_t coordinates, int width, std::uint8_t* to, Stream) const = 0;
  virtual int unpack(const PackedShares&, std::uint64_t coordinates, std::uint32_t most, std::uint16_t* sums,
                     std::uint32_t* largest, Stream) const = 0;
  // Of all kernels, into the current context; 0 or the CUDA error.
  virtual int load() const = 0;
};

// Null where the codec's payloads are not summed as integers. One family's are: thc has the kernels.
std::unique_ptr<DeviceSums> make_device_sums(const Codec&);

}  // namespace crimp
