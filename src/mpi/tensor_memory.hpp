// What a communicator keeps of its tensors from call to call: residuals and momenta, the shapes of PowerSGD's matrices,
// the learning rate that all this was made for, and how large values were.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "codec/powersgd/powersgd_extents.hpp"
#include "collective/residual.hpp"
#include "schedule/layout.hpp"

namespace crimp {

// Not thread-safe: one communicator's calls are ordered. What throws leaves what was kept as ResidualStore::find says.
class TensorMemory {
 public:
  void keep_bytes(int rank, Workers* workers) { residuals_.keep_bytes(rank, workers); }  // CRIMP_RESIDUAL=8bit
  void begin_call();
  void settle() { residuals_.settle(); }  // the call has compressed
  // Since the last keep(): what was made new holds nothing yet. keep() makes it stay, drop_new() drops it.
  void keep() { residuals_.keep(); }
  void drop_new() { residuals_.drop_new(); }
  // Of a negotiated tensor that will not come again: all that there is.
  void forget(const Segment&);
  std::uint64_t bytes() const { return residuals_.bytes(); }
  void forget_unnamed(std::string_view prefix);  // no key that begins so will come again

  // crimp_set_learning_rate, crimp_set_extents; legal values, equal on all ranks between the same calls.
  void set_learning_rate(double rate) { learning_rate_ = rate; }
  void set_extents(const std::string& name, std::uint64_t rows, std::uint64_t cols);

  // Of a tensor, in units of the learning rate of now.
  Residual& find(Layout::Source, const Segment&, bool owner, const ResidualShape&, MemoryResource&);
  // Of the layout's segments that are summed; null of the others. Of the ranks' own values, and of the sums that they
  // own.
  std::vector<Residual*> of_values(const Layout&, const Codec&, MemoryResource&);
  std::vector<Residual*> of_sums(const Layout&, const Codec&, MemoryResource&);
  // Of sums that other routes made this rank own, where it holds any; else empty. Behind of_values().
  std::vector<Residual*> held_sums(const Layout&, MemoryResource&);
  // What is known of shapes, likewise; also null of tensors without a name.
  std::vector<powersgd::Extents*> extents_of(const Layout&);

  // What another job, or this one later, needs of the tensors that have names (collective/saved_state.hpp).
  std::vector<TensorView> saved() const { return residuals_.saved(); }
  std::vector<SavedExtents> saved_extents() const;
  std::size_t unnamed() const { return residuals_.unnamed(); }  // tensors that saved() leaves out
  // What it throws for want of memory it throws when the extents are loaded.
  void load(std::vector<SavedTensor>, const std::vector<SavedExtents>&);
  ResidualStore::Loaded loaded() const { return residuals_.loaded(); }
  bool waiting() const { return residuals_.waiting(); }
  void forget_waiting() { residuals_.forget_waiting(); }

  // A tensor of now `largest` whose values were more than `jump` times larger in its last call: true.
  bool fell(Layout::Source, const Segment&, double largest, double jump);

  // The name of what is kept, without what tells sizes apart.
  static std::string_view name_of(std::string_view kept) { return kept.substr(0, kept.find(kOfSize)); }

 private:
  ResidualStore residuals_;
  // Tensors of several sizes may have one name, as those of two optimizers do: each has a residual of its own, but for
  // those beyond kMostSizes, which have one among them.
  static constexpr std::size_t kMostSizes = 4;
  static constexpr char kOfSize = '\x1f';
  struct Size {
    std::uint64_t count;
    std::string kept;    // the name of what is kept
    double largest = 0;  // as largest_
  };
  std::string_view kept_as(Layout::Source, const Segment&, std::string& other);  // in `other`, where there are too many
  void to_rate_of_now(Residual&, const ResidualShape&, MemoryResource&) const;
  // Goes on where it was when a device failed.
  static void to_rate(double, Residual&, const ResidualShape&, MemoryResource&);
  Size* size_of(Layout::Source, const Segment&);  // of one that has a name, for now; null: there are too many
  static std::string other_size(const Segment&);  // then
  std::unordered_map<std::string, std::vector<Size>> sizes_[2];  // of negotiated, of named tensors; the first one first
  std::map<KeyOf<std::string>, double> largest_;  // magnitudes of the last call's values, where fell() is asked
  std::map<std::pair<std::string, std::uint64_t>, powersgd::Extents> extents_;  // by the tensors' keys and counts
  std::size_t unnamed_extents_ = 0;  // that have been made since those were forgotten
  double learning_rate_ = 0;         // 0: not known
};

}  // namespace crimp
