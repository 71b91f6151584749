#include "core/report.hpp"

#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>

namespace crimp {
namespace {

constexpr const char* kNames[] = {
#define CRIMP_ITEM(name, text) #name,
    CRIMP_PASSES(CRIMP_ITEM)
#undef CRIMP_ITEM
};
constexpr const char* kTexts[] = {
#define CRIMP_ITEM(name, text) text,
    CRIMP_PASSES(CRIMP_ITEM)
#undef CRIMP_ITEM
};

std::string bytes_text(std::uint64_t bytes) {
  const double b = static_cast<double>(bytes);
  if (b >= 1e9) return fmt::format("{:.2f} GB", b * 1e-9);
  if (b >= 1e6) return fmt::format("{:.2f} MB", b * 1e-6);
  return fmt::format("{:.1f} kB", b * 1e-3);
}

}  // namespace

const char* name_of(Pass p) { return kNames[static_cast<std::size_t>(p)]; }
const char* text_of(Pass p) { return kTexts[static_cast<std::size_t>(p)]; }

void Report::Sum::add(const CallRecord& r) {
  ++calls;
  bytes_in += r.bytes_in;
  sent += r.sent_bytes;
  received += r.received_bytes;
  encode += r.encode_s;
  wire += r.wire_s;
  decode += r.decode_s;
  total += r.total_s;
  predicted += r.predicted_s;
  plain += r.plain_s;
}

void Report::compressed(const CallRecord& r) {
  std::lock_guard lock(mutex_);
  all_.add(r);
  by_codec_[r.codec].add(r);
  by_algorithm_[r.algorithm].add(r);
  ++reasons_[r.algorithm][r.why];
  by_layout_[r.layout].add(r);
  by_size_[static_cast<int>(std::bit_width(r.bytes_in)) - 1].add(r);
}

std::string Report::summary() const {
  std::lock_guard lock(mutex_);
  std::string text;
  if (all_.calls == 0) {
    text = "no call was compressed";
  } else {
    std::string codecs;
    for (const auto& [codec, sum] : by_codec_)
      codecs += (codecs.empty() ? "" : ", ") + fmt::format("{} with {}", sum.calls, codec);
    std::string how;
    for (const auto& [algorithm, sum] : by_algorithm_) how += fmt::format("{}{} by {}", how.empty() ? "" : ", ", sum.calls, algorithm);
    text = fmt::format("{} calls compressed ({}; {}): {} in, {} sent per rank ({:.1f}x less), in {:.2f} s (encode {:.2f}, wire {:.2f}, decode {:.2f})",
                       all_.calls, codecs, how, bytes_text(all_.bytes_in), bytes_text(all_.sent),
                       static_cast<double>(all_.bytes_in) / static_cast<double>(std::max<std::uint64_t>(all_.sent, 1)), all_.total,
                       all_.encode, all_.wire, all_.decode);
  }
  std::string passes;
  for (std::size_t i = 0; i < passes_.size(); ++i)
    if (const auto n = passes_[i].load()) passes += (passes.empty() ? "" : ", ") + fmt::format("{} {}", n, kTexts[i]);
  if (!passes.empty()) text += "; passed through: " + passes;
  if (const auto n = errors_.load()) text += fmt::format("; {} calls failed", n);
  return text;
}

std::string Report::json() const {
  std::lock_guard lock(mutex_);
  using nlohmann::json;
  const auto object = [](const Sum& s) {
    return json{{"calls", s.calls},       {"bytes_in", s.bytes_in},
                {"sent_bytes", s.sent},   {"received_bytes", s.received},
                {"ratio", s.sent ? static_cast<double>(s.bytes_in) / static_cast<double>(s.sent) : 0.0},
                {"encode_s", s.encode},   {"wire_s", s.wire},
                {"decode_s", s.decode},   {"total_s", s.total}};
  };
  json out = object(all_);
  for (const auto& [codec, sum] : by_codec_) out["codecs"][codec] = object(sum);
  for (const auto& [algorithm, sum] : by_algorithm_) {
    json& to = out["algorithms"][algorithm] = object(sum);
    to["why"] = reasons_.at(algorithm);
    if (sum.predicted > 0) to["predicted_s"] = sum.predicted, to["plain_predicted_s"] = sum.plain;
  }
  for (const auto& [layout, sum] : by_layout_) out["layouts"][layout] = object(sum);
  for (const auto& [log2, sum] : by_size_) out["size_classes"][std::to_string(std::uint64_t{1} << log2)] = object(sum);
  for (std::size_t i = 0; i < passes_.size(); ++i) out["passed_through"][kNames[i]] = passes_[i].load();
  out["errors"] = errors_.load();
  out["residual_bytes"] = residual_bytes_.load();
  return out.dump();
}

}  // namespace crimp
