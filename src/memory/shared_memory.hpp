// Memory that processes of one machine share: an anonymous file of the kernel's, so that neither the size of /dev/shm
// nor a name matters.
//
// All bytes are had before the constructor returns: touching them later cannot fail for want of memory, as it does
// (SIGBUS) in a full /dev/shm.
#pragma once
#include <cstddef>
#include <cstdint>

namespace crimp {

class SharedMemory {
 public:
  // Where other processes find it, sent to them as bytes.
  struct Place {
    std::int64_t process = 0, descriptor = -1;
    std::uint64_t bytes = 0, key = 0;
  };
  static constexpr std::size_t kKeyBytes = sizeof(Place::key);  // ahead of the memory in its file
  SharedMemory() = default;                                     // of no bytes
  // Zeroed, aligned to a page. Throws Error{out_of_memory} that says why.
  explicit SharedMemory(std::uint64_t bytes);
  // Another process's, which has not called close_door(). Throws Error{out_of_memory} where it cannot be reached:
  // another container, another user.
  explicit SharedMemory(const Place&);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  Place place() const { return place_; }  // of what this process made
  // No more processes may come in. The memory stays until the last process gives it back.
  void close_door();
  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return place_.bytes; }

 private:
  void map(int descriptor);
  std::byte* base_ = nullptr;  // the key lies before data_
  std::byte* data_ = nullptr;
  Place place_;
};

}  // namespace crimp
