#include "collective/frame.hpp"

#include <cstring>

#include "core/digest.hpp"
#include "core/fault.hpp"

namespace crimp {
namespace {

void may_corrupt(const char* fault, std::span<std::uint8_t> bytes) {
  if (!bytes.empty() && fault::fires(fault)) bytes[bytes.size() / 2] ^= 0x55;
}

}  // namespace

void seal(Header& header, std::span<std::uint8_t> body, bool checksum) {
  header.body_bytes = body.size();
  header.body_hash = checksum ? digest(body.data(), body.size()) : 0;
  may_corrupt("corrupt_body", body);
}

void seal_frame(Header header, std::span<std::uint8_t> frame, bool checksum) {
  seal(header, frame.subspan(sizeof header), checksum);
  std::memcpy(frame.data(), &header, sizeof header);
}

std::string defect(const Header& header, std::span<const std::uint8_t> body, bool readable) {
  if (header.flags & kFlagCorrupt)
    return header.stage ? "it met a corrupt payload itself, or its device failed"
                        : "its device failed and it has none to send";
  if (header.body_bytes != body.size())
    return "it has " + std::to_string(header.body_bytes) + " bytes, " + std::to_string(body.size()) + " are due";
  if (readable && header.body_hash && digest(body.data(), body.size()) != header.body_hash)
    return "its checksum is wrong";
  return {};
}

std::string frame_defect(const Header& expected, std::span<const std::uint8_t> frame) {
  Header got;
  std::memcpy(&got, frame.data(), sizeof got);
  const std::string differs = disagreement(expected, got);
  return differs.empty() ? defect(got, frame.subspan(sizeof got)) : differs;
}

void may_corrupt_header(Header& leaving) {
  if (fault::fires("corrupt_header")) leaving.count ^= 1;
}

void may_corrupt_wire(std::span<std::uint8_t> arrived) { may_corrupt("corrupt_wire", arrived); }

}  // namespace crimp
