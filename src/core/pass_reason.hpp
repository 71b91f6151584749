// Why a call went through MPI unchanged.
#pragma once
#include <cstddef>

namespace crimp {

// One list makes the enum and the texts.
#define CRIMP_PASSES(ITEM)                                                                           \
  ITEM(off, "switched off")                                                                          \
  ITEM(operation, "not a sum")                                                                       \
  ITEM(type, "not a recognised floating-point type")                                                 \
  ITEM(small, "fewer elements than CRIMP_MIN_COUNT")                                                 \
  ITEM(communicator, "one rank or an intercommunicator")                                             \
  ITEM(odd_arguments, "arguments left to MPI to judge")                                              \
  ITEM(no_codec, "no lossy codec chosen")                                                            \
  ITEM(settings_differ, "settings differ between ranks")                                             \
  ITEM(unknown_layout, "tensors unknown and CRIMP_UNKNOWN_LAYOUT=none")                              \
  ITEM(rules, "tensors excluded by CRIMP_RULES")                                                     \
  ITEM(range, "NaN, Inf or values outside the codec's range")                                        \
  ITEM(outlier, "values far from their tensor's usual size")                                         \
  ITEM(foreign, "values that are not the expected tensor's")                                         \
  ITEM(no_gradient, "values that no gradient has: whole numbers, of one sign, or of an earlier sum") \
  ITEM(first, "first sums of tensors that a trainer names")                                          \
  ITEM(memory, "a rank was out of memory")                                                           \
  ITEM(adasum, "dot products of Horovod's Adasum")                                                   \
  ITEM(slower, "plain MPI faster, or tried")                                                         \
  ITEM(shares, "a codec of whole tensors, of which ranks receive shares")                            \
  ITEM(early, "a communicator's first calls, before anything is measured for it")                    \
  ITEM(nonblocking, "sums that do not block, which one exchange of payloads would not shorten")      \
  ITEM(unprepared, "on ranks whose settings were not compared at MPI_Init")

enum class PassReason : std::size_t {
#define CRIMP_ITEM(name, text) name,
  CRIMP_PASSES(CRIMP_ITEM)
#undef CRIMP_ITEM
      count
};
const char* name_of(PassReason);
const char* text_of(PassReason);

}  // namespace crimp
