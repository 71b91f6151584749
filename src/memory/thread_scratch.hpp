// What does not fit on a stack: threads of host programs may have 256 KB. Every thread that encodes or decodes on the
// host has one block, made when it first asks and freed when the thread ends.
//
// It has one user at a time: who takes it calls nothing that takes it too. Its contents are what the user before left.
// Before it lies a piece's room for who calls such users, so that what they prefetch behind a piece is memory.
// Errors: Error{out_of_memory} where a thread first asks. Who must not fail later asks before: HostBackend::prepare(),
// and Workers for theirs.
#pragma once
#include <cstddef>
#include <type_traits>

namespace crimp {

inline constexpr std::size_t kThreadScratchBytes = 320 << 10;

std::byte* thread_scratch();     // the calling thread's block, aligned to 4096 bytes
float* thread_piece() noexcept;  // kPieceElements, likewise; null where a first block cannot be had

template <class T>
T& thread_scratch_as() {
  static_assert(sizeof(T) <= kThreadScratchBytes && std::is_trivially_copyable_v<T> &&
                std::is_trivially_destructible_v<T>);
  return *reinterpret_cast<T*>(thread_scratch());
}

}  // namespace crimp
