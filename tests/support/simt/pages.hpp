// The pages of device memory. Nobody reaches them but the thread that has opened them, for as long as an operation of a
// stream works on them: what a program does to device memory by itself is a fault, as it is beside a real card.
//
// By a key of the processor's (pkey_mprotect), so that opening and closing is one register's business; where there are
// no keys, or STANDIN_KEYS=0 is in the environment, by mprotect of all pages, for all threads. Keys do not hold for
// other processes: process_vm_readv, by which MPIs copy long messages, reads pages behind a key and not those of
// mprotect.
//
// Callers hold the runtime's mutex.
#pragma once
#include <cstddef>

namespace simt {

constexpr std::size_t kPage = 4096;

// Private pages of zeros at addresses that were never used before, so that what is freed stays out of reach; a page
// that nobody can touch lies before and behind. Null: there is no more room.
unsigned char* take_pages(std::size_t bytes);
// The first bytes of a file in their place, which other processes can map too.
bool share_pages(unsigned char* pages, int descriptor);
void drop_pages(unsigned char* pages);
bool in_pages(const void*);  // in what they are taken from

// Calls nest.
void open_pages();
void close_pages();
bool last_to_close();  // whether the next close_pages() is what ends it

}  // namespace simt
