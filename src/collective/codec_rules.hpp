// Which codecs the settings give to tensors: CRIMP_CODEC, CRIMP_UNKNOWN_LAYOUT, CRIMP_RULES.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "codec/codec_pool.hpp"
#include "core/settings.hpp"
#include "schedule/rules.hpp"

namespace crimp {

class CodecRules {
 public:
  // refuse(text) for each setting that is illegal.
  void read(const Settings&, const std::function<void(const std::string&)>& refuse);
  // In place of CRIMP_CODEC=auto. Throws Error{codec_unknown}.
  void choose(std::string_view spec);

  CodecPool& pool() { return pool_; }
  const std::shared_ptr<const Codec>& codec() const { return codec_; }       // null: none was chosen
  bool any() const { return version_.load(std::memory_order_acquire) > 0; }  // as codec(), from any thread
  // Changes where codec() does: what was derived from the rules before is out of date.
  std::uint32_t version() const { return version_.load(std::memory_order_acquire); }
  // Of tensors without a name, in place of a codec that keeps something of tensors; null: pass through.
  const Codec* unknown_layout() const { return unknown_.get(); }
  // fp16, which may stand in for a codec whenever it is faster: it keeps the same of tensors, nothing where
  // CRIMP_ERROR_FEEDBACK is off, and loses less. Null: none may, because the codec has 16 bits or more itself, or its
  // results are no plain sums of values.
  const Codec* halves_of(const Codec&) const;
  const Codec* exact() const { return exact_.get(); }  // fp32
  // CRIMP_CODEC or the first rule's codec that keeps the training's momentum, which tensors that are not compressed
  // must have, too, but for plain() ones; null: none does.
  const Codec* momentum() const { return momentum_; }
  // CRIMP_LADDER, from the mildest; empty where CRIMP_CONTROL is off. CRIMP_CODEC=auto is then its first codec.
  const std::vector<std::shared_ptr<const Codec>>& ladder() const { return ladder_; }
  int ladder_start() const;  // where codec() stands in it; 0: it does not
  bool ruled(const std::string& name, std::uint64_t count) const { return rules_.match(name, count) >= 0; }
  // Whether a pattern of CRIMP_RULES that is not for all names gives the tensor a codec: whoever wrote it knows that
  // this is a gradient.
  bool names_gradient(const std::string& name, std::uint64_t count) const;
  // A named tensor is no parameter, by CRIMP_RULES (none:memory=none): its sum is MPI's, without momentum.
  bool plain(const std::string& name, std::uint64_t count) const;
  // Of a named tensor, by CRIMP_RULES; null: it is summed exactly. alternative: of its rule's codecs, the last one
  // where it has fewer.
  const Codec* of_tensor(const std::string& name, std::uint64_t count, std::size_t alternative = 0) const;
  // Whether it is so of any that settings name for tensors.
  bool any_codec(const std::function<bool(const Codec&)>& is) const;
  std::size_t alternatives() const;  // the most that a rule has; at least 1
  // What has come of CRIMP_RULES so far. From any thread.
  struct Use {
    std::vector<std::string> idle;  // patterns that no tensor has come to: no name matches, or an earlier rule took all
    std::string first;              // the first tensor that of_tensor() was asked for; empty: nobody names any
  };
  Use use() const;

 private:
  CodecPool pool_;
  std::atomic<std::uint32_t> version_{0};
  std::shared_ptr<const Codec> codec_, unknown_, halves_, halves_residual_, exact_;
  Rules rules_;
  std::vector<std::vector<std::shared_ptr<const Codec>>> rule_codecs_;  // of each rule; null: exact
  mutable std::mutex use_mutex_;
  mutable std::vector<bool> used_;  // of each rule
  mutable std::string first_;
  const Codec* momentum_ = nullptr;
  std::vector<std::shared_ptr<const Codec>> ladder_;
  void read_rules(const std::string& text);
  void read_ladder(const std::string& text);
};

}  // namespace crimp
