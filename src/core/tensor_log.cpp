#include "core/tensor_log.hpp"

#include <algorithm>

namespace crimp {

void TensorLog::called(std::string_view name, const char* source, std::uint64_t elements, std::string_view codec,
                       double bytes_in, double sent_bytes) {
  auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    if (tensors_.size() >= kListed) {
      ++unlisted_calls_;
      return;
    }
    found = tensors_.emplace(std::string(name), Tensor{}).first;
  }
  Tensor& t = found->second;
  t.source = source;  // which is read where there is no memory for the rest
  t.elements = elements;
  const auto same = std::find_if(t.codecs.begin(), t.codecs.end(), [&](const auto& c) { return c.spec == codec; });
  if (same != t.codecs.end()) ++same->calls;
  else if (t.codecs.size() < kCodecs) t.codecs.push_back({std::string(codec), 1});
  else ++t.codecs.back().calls;
  ++t.calls;
  t.bytes_in += bytes_in;
  t.sent_bytes += sent_bytes;
}

void TensorLog::sampled(std::string_view name, const char* memory, const Sample& sample) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return;
  Tensor& t = found->second;
  t.memory = memory;
  if (t.samples.size() < kSamples) t.samples.push_back(sample);
  else t.samples.back() = sample;
}

}  // namespace crimp
