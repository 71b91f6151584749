#include "horovod/response.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "response_list_generated.h"

namespace crimp::horovod {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1}
                                       << 32;  // MPI counts are int; sums of sizes in bytes stay far from overflow

}  // namespace

std::string group_of(const std::string& name) {
  const auto of = name.rfind("of"), line = name.rfind('_');
  if (of == name.npos || line == name.npos || line + 1 >= of || of + 2 >= name.size()) return {};
  const auto digits = [&](std::size_t from, std::size_t to) {
    return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(from), name.begin() + static_cast<std::ptrdiff_t>(to),
                       [](char c) { return c >= '0' && c <= '9'; });
  };
  return digits(line + 1, of) && digits(of + 2, name.size()) ? name.substr(0, line) : std::string();
}

int index_in_group(const std::string& name) { return std::atoi(name.c_str() + name.rfind('_') + 1); }
std::int64_t group_size(const std::string& name) {
  return std::strtoll(name.c_str() + name.rfind("of") + 2, nullptr, 10);
}

std::optional<std::vector<Response>> read_response_list(const void* bytes, std::size_t size) {
  flatbuffers::Verifier verifier(static_cast<const std::uint8_t*>(bytes), size);
  if (!wire::VerifyResponseListBuffer(verifier)) return {};
  std::vector<Response> out;
  const auto* list = wire::GetResponseList(bytes)->responses();
  if (!list) return out;
  for (const auto* r : *list) {
    Response& to = out.emplace_back();
    if (r->type() < Response::allreduce || r->type() > Response::error) return {};
    to.type = static_cast<Response::Type>(r->type());
    if (r->tensor_names())
      for (const auto* name : *r->tensor_names()) to.names.push_back(name->str());
    if (const auto* sizes = r->tensor_sizes()) {
      // The verifier does not look at the alignment of a vector's elements.
      to.sizes.resize(sizes->size());
      for (std::size_t i = 0; i < to.sizes.size(); ++i) {
        std::memcpy(&to.sizes[i], sizes->Data() + i * sizeof(std::int64_t), sizeof(std::int64_t));
        to.sizes[i] = flatbuffers::EndianScalar(to.sizes[i]);
      }
    }
    if (r->devices()) to.devices.assign(r->devices()->begin(), r->devices()->end());
    to.tensor_type = r->tensor_type();
    to.reduce_op = r->reduce_op();
    to.prescale = r->prescale_factor();
    to.postscale = r->postscale_factor();
    const bool reduces = to.type == Response::allreduce || to.type == Response::adasum;
    if (reduces && to.sizes.size() != to.names.size()) return {};
    for (const auto n : to.sizes)
      if (n < 0 || n > kMostElements) return {};
  }
  return out;
}

}  // namespace crimp::horovod
