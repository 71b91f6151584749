#include "codec/codec_pool.hpp"

namespace crimp {

std::shared_ptr<const Codec> CodecPool::get(std::string_view spec) {
  auto made = make_codec(spec);
  std::lock_guard lock(mutex_);
  return codecs_.try_emplace(made->spec(), made).first->second;
}

}  // namespace crimp
