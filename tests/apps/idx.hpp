// The IDX format of the MNIST family (gzip, big-endian header, unsigned bytes).
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct Idx {
  int count = 0;       // items: images or labels
  int item_bytes = 1;  // pixels of an image; 1 for labels
  std::vector<std::uint8_t> bytes;

  const std::uint8_t* item(int i) const { return bytes.data() + std::size_t(i) * item_bytes; }
};

// Reads the first `limit` items (0: all). Throws std::runtime_error naming the file.
inline Idx read_idx(const std::string& path, int limit = 0) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) throw std::runtime_error(path + ": cannot be opened (Debian package dataset-fashion-mnist, or --data)");
  const auto read = [&](void* to, std::size_t size) {
    if (gzread(file.get(), to, unsigned(size)) != int(size)) throw std::runtime_error(path + ": ends early");
  };
  const auto word = [&] {
    std::uint8_t b[4];
    read(b, sizeof b);
    return std::uint32_t(b[0]) << 24 | std::uint32_t(b[1]) << 16 | std::uint32_t(b[2]) << 8 | b[3];
  };
  const std::uint32_t magic = word();
  const std::uint32_t dimensions = magic & 0xff;
  if (magic >> 8 != 0x08 || dimensions < 1 || dimensions > 3)
    throw std::runtime_error(path + ": not an IDX file of bytes");
  Idx idx;
  const std::uint32_t stored = word();
  if (stored > 10'000'000) throw std::runtime_error(path + ": unreasonable number of items");
  for (std::uint32_t d = 1; d < dimensions; ++d) {
    const std::uint32_t extent = word();
    if (extent < 1 || extent > 1024) throw std::runtime_error(path + ": unreasonable image size");
    idx.item_bytes *= int(extent);
  }
  idx.count = limit > 0 && limit < int(stored) ? limit : int(stored);
  idx.bytes.resize(std::size_t(idx.count) * idx.item_bytes);
  read(idx.bytes.data(), idx.bytes.size());
  return idx;
}
