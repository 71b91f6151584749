#include "schedule/merge_plan.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "core/error.hpp"
#include "core/numbers.hpp"

namespace crimp {

MergePlan::MergePlan(std::string_view text) {
  const auto refuse = [&] {
    throw Error(ErrorCode::option_invalid,
                "CRIMP_MERGE is '" + std::string(text) +
                    "', legal is: off, auto, all, bytes=N (suffix k, M, G), y=N, or cuts=i,j,... in rising order");
  };
  const auto equals = text.find('=');
  const std::string_view name = text.substr(0, equals),
                         value = equals == text.npos ? std::string_view() : text.substr(equals + 1);
  if (text == "off") return;
  if (text == "all") {
    kind_ = Kind::all;
  } else if (text == "auto") {
    kind_ = Kind::searched;
  } else if (name == "bytes" || name == "y") {
    kind_ = name == "y" ? Kind::number : Kind::bytes;
    if (!parse_number<std::uint64_t>(value, 1, std::uint64_t{1} << 50, number_)) refuse();
  } else if (name == "cuts") {
    kind_ = Kind::cuts;
    for (std::string_view rest = value; !rest.empty();) {
      const auto comma = rest.find(',');
      std::uint64_t cut = 0;
      if (!parse_number<std::uint64_t>(rest.substr(0, comma), 1, 1u << 30, cut) ||
          (!cuts_.empty() && cut <= cuts_.back()) || comma + 1 == rest.size())
        refuse();
      cuts_.push_back(cut);
      rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 1);
    }
    if (cuts_.empty()) refuse();
  } else {
    refuse();
  }
}

std::vector<std::uint32_t> MergePlan::groups(const std::vector<std::uint64_t>& tensor_bytes) const {
  std::vector<std::uint32_t> out(tensor_bytes.size());
  const std::uint64_t total = std::accumulate(tensor_bytes.begin(), tensor_bytes.end(), std::uint64_t{0});
  std::uint64_t in_group = 0, before = 0;
  std::uint32_t group = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t left = out.size() - i;
    bool next = false;
    switch (kind_) {
      case Kind::off: next = true; break;
      case Kind::all:
      case Kind::searched: break;
      case Kind::bytes: next = in_group >= number_; break;
      case Kind::number:
        // Where this group's share is reached, and where the rest is only just enough tensors for the rest of the
        // groups.
        next = group + 1 < number_ && in_group > 0 &&
               (before >= total * (group + 1) / number_ || left <= number_ - group - 1);
        break;
      case Kind::cuts: next = std::binary_search(cuts_.begin(), cuts_.end(), i); break;
    }
    if (next && i > 0) {
      ++group;
      in_group = 0;
    }
    out[i] = group;
    in_group += tensor_bytes[i];
    before += tensor_bytes[i];
  }
  return out;
}

}  // namespace crimp
