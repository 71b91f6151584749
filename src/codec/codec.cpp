#include "codec/codec.hpp"

#include "core/error.hpp"

namespace crimp {

double Codec::parameter_value(std::string_view key) const {
  for (const auto& [own, value] : parameters_)
    if (own == key) return value;
  throw Error(ErrorCode::codec_unknown, "codec " + spec_ + " has no parameter " + std::string(key));
}

}  // namespace crimp
