// A node whose ranks all have a call's values in memory of devices: they add and hand on sums through slots that they
// share (backend/shared_slots.hpp), with the bits of a sum in the host's memory.
//
// Values pass in blocks, twice as many floats as a block has are in a slot. Where slots cannot be had, on any of the
// node's ranks, it goes without for some calls, twice as many each time.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "backend/shared_slots.hpp"
#include "core/error.hpp"

namespace crimp {

class Backend;
class Node;
struct Layout;

class NodeDevices {
 public:
  // Floats of a block, a power of two of them: 2 to 32 MiB of a device for a slot. What is shared at all is shared in
  // pages of 2 MiB, with whatever else lies there.
  static constexpr std::uint64_t kLeastBlock = std::uint64_t{1} << 18, kMostBlock = std::uint64_t{4} << 20;
  NodeDevices();
  // Collective over the node, whose ranks have noted their devices: whether its values go through slots with room for
  // such a block. The same on all of them.
  bool open(Node&, Backend* backend, std::uint64_t block);
  // As sum_in_node() and share_in_node(), where open() has said so. Nothing is under way behind them, whatever failed.
  std::optional<Error> sum(Node&, const float* in, float* sums, std::uint64_t count);
  std::optional<Error> share(Node&, const Layout&, const float* sums, float* out, std::uint64_t count);

 private:
  // Of ranks with certain devices: programs may take turns with theirs.
  struct Slots {
    std::unique_ptr<SharedSlots> of;  // null: they cannot be had
    std::uint64_t block = 0;
    int left = 0, next = 8;  // calls that go without
  };
  static bool make(Node&, Backend&, Slots&);
  std::map<std::vector<int>, Slots> known_;  // equal on all ranks
  Slots* now_ = nullptr;                     // what open() has opened
};

// Work that may fail while other ranks wait: what fails is kept, what would follow is left out.
class Attempts {
 public:
  template <class Work>
  void operator()(Work&& work) {
    if (!failed) try {
        work();
      } catch (const Error& e) {
        fail(e.code(), e.what());
      } catch (const std::exception& e) {
        fail(ErrorCode::out_of_memory, e.what());
      }
  }
  std::optional<Error> failed;

 private:
  void fail(ErrorCode, const char* what) noexcept;
};

// What a rank says to whom another one's failure leaves without the sums.
Error not_handed_on();

}  // namespace crimp
