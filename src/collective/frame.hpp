// A payload's header and its body: what a sender says of the body in the header, and what a receiver checks before
// anything looks into the body. Bodies travel behind the exchange of their headers, or each right behind its header:
// such a pair is a frame. WIRE_FORMAT.md, sections 2 and 6.
//
// The faults corrupt_header, corrupt_body and corrupt_wire (core/fault.hpp) arise here.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "collective/wire.hpp"

namespace crimp {

// Completes the header of a body that is in place: its bytes and, with `checksum`, its hash.
void seal(Header&, std::span<std::uint8_t> body, bool checksum);
// The same where the body stands in its frame; the header is put in front of it.
void seal_frame(Header, std::span<std::uint8_t> frame, bool checksum);

// Why a received body is not to be used; empty where nothing is known against it before its codec looks at it. body:
// what was received, as long as is due. readable: the host may read it, else nothing is hashed.
std::string defect(const Header&, std::span<const std::uint8_t> body, bool readable = true);
// Likewise of a frame. expected: a header of the receiver's own for the same chunk and stage (wire.hpp,
// disagreement()).
std::string frame_defect(const Header& expected, std::span<const std::uint8_t> frame);

// Where tests have one header of a rank, or a body that it has received, altered. Otherwise nothing.
void may_corrupt_header(Header& leaving);
void may_corrupt_wire(std::span<std::uint8_t> arrived);

}  // namespace crimp
