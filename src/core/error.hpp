// The failures that Crimp can name, and the exception that carries one inside the library.
//
// Inside, code throws Error; nothing throws across the C border, where guard() (mpi_shim/guard.hpp) turns an Error into
// an MPI error code raised on the caller's communicator.
#pragma once
#include <stdexcept>
#include <string>

namespace crimp {

// One list makes the enum, the texts and the MPI error strings.
#define CRIMP_ERRORS(ITEM)                                                                           \
  ITEM(option_invalid, "a CRIMP_* setting has an illegal value")                                     \
  ITEM(codec_unknown, "no such codec or codec parameter")                                            \
  ITEM(layout_invalid, "the segments do not cover the buffer exactly once, in order")                \
  ITEM(call_differs, "the ranks disagree about one collective call (count, codec, layout or order)") \
  ITEM(payload_corrupt, "a received payload does not follow the wire format")                        \
  ITEM(argument_invalid, "an argument of a crimp_* function is invalid")                             \
  ITEM(out_of_memory, "memory for buffers could not be allocated")                                   \
  ITEM(transport_failed, "an MPI call inside Crimp failed")                                          \
  ITEM(device_failed, "the GPU or its driver failed")

enum class ErrorCode : int {
#define CRIMP_ITEM(name, text) name,
  CRIMP_ERRORS(CRIMP_ITEM)
#undef CRIMP_ITEM
};

const char* name_of(ErrorCode) noexcept;  // "payload_corrupt"
const char* text_of(ErrorCode) noexcept;  // the sentence of the list

class Error : public std::runtime_error {
 public:
  // `what` says which value was bad, what is legal and what to do.
  Error(ErrorCode code, const std::string& what, int mpi_code = 0)
      : std::runtime_error(what), code_(code), mpi_code_(mpi_code) {}
  ErrorCode code() const noexcept { return code_; }
  int mpi_code() const noexcept { return mpi_code_; }  // the failing MPI call's own code, 0 where none

 private:
  ErrorCode code_;
  int mpi_code_;
};

}  // namespace crimp
