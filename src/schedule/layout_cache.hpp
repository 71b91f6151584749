// Layouts that come again: a program names the same tensors in every step, and a layout is made and digested once.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "core/bounded_map.hpp"
#include "schedule/layout.hpp"

namespace crimp {

// Of named tensors. Thread-safe; of more than kMost layouts some are forgotten.
class LayoutCache {
 public:
  static constexpr std::size_t kMost = 1024;
  struct Tensor {
    const char* name;
    std::uint64_t count;
  };

  // The layout that put() was given for the same tensors; null: none.
  std::shared_ptr<const Layout> find(std::span<const Tensor>) const;
  void put(std::span<const Tensor>, std::shared_ptr<const Layout>);

 private:
  mutable std::mutex mutex_;
  BoundedMap<std::uint64_t, std::shared_ptr<const Layout>> layouts_{kMost};  // by what was said of the tensors
};

}  // namespace crimp
