// Which algorithm a call takes, or plain MPI where that is predicted to be faster. A model is measured at one of a
// communicator's first calls, unless another communicator of the same ranks has, and agreed by all ranks: every number
// is the slowest rank's, exchanged before it is used. Where it sees a near thing, trials decide.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collective/account.hpp"
#include "collective/candidates.hpp"
#include "collective/choice.hpp"
#include "collective/measure.hpp"
#include "collective/shared_models.hpp"
#include "collective/trials.hpp"

namespace crimp {

// A communicator's own. Not thread-safe.
class Chooser {
 public:
  // Calls that a communicator, or all of the same ranks together, go without a measurement: who is freed soon pays
  // nothing, and who duplicates for each step only once.
  static constexpr std::uint64_t kEarly = 3, kEarlyOfGroup = 64;
  // Calls in which a communicator begins no trials: kEarly, and twice as many for each one of the same ranks that was
  // freed before its own could end, and spent a quarter of its calls or more on them; but no more than so many times.
  static constexpr std::uint64_t kMostDoublings = 6;
  static constexpr double kOpeningNodes = 2e-3;  // about what it takes, in seconds

  // forced: as CRIMP_ALGORITHM; "auto": the cheapest.
  explicit Chooser(const std::string& forced) : forced_(forced) {}
  ~Chooser();
  Chooser(const Chooser&) = delete;
  Chooser& operator=(const Chooser&) = delete;
  // Collective where something must be agreed or measured, which is a function of the calls so far. `time` gives this
  // rank's cost of the query's codec, or of its halves, on values of the call, on demand. same_call: it has been asked
  // before in this call, for another codec. `backend`: where this rank has its values, likewise on demand; nothing, or
  // null: in host memory.
  Choice choose(Transport&, const ChoiceQuery&, const PlainAllreduce&,
                const std::function<CodecCost(const Codec&)>& time, bool same_call = false,
                const std::function<Backend*()>& backend = {});
  // In its place where the call will likely be declined, so that headers are to come first: nothing is tried or
  // measured, and no one exchange brings payloads as well.
  Choice headers_first(const ChoiceQuery&, int ranks);
  // How long the call took that choose() made this choice for. Not called: it failed.
  void took(const ChoiceQuery&, const Choice&, double s);
  // What choose() has said of a call is what it will say of the next one with the same query: plain MPI, and nothing is
  // measured, tried or agreed before. codec: null where that is not so.
  struct Settled {
    const Codec* codec = nullptr;
    std::uint64_t state = 0;
  };
  Settled settled(const ChoiceQuery&, const Choice&) const;
  bool still(const Settled&) const;  // it is for the next call
  void passed(const Settled&);       // such a call was, without choose()
  // Where what such calls take is to be said, whatever carries them; it has learnt what is known of them now. Stays
  // while the chooser does.
  Account& account(const ChoiceQuery&);
  // For the report.
  struct Times {
    const Codec* codec;
    std::uint64_t from_elements;
    TimeRecord of;
  };
  std::vector<Times> times() const;
  void force(const std::string& algorithm) { forced_ = algorithm, ++state_; }
  // Begins anew, as a new communicator of the same ranks.
  void forget();
  // Before the first call: how the communicator's nodes are opened, when they are first needed. Collective; null on all
  // ranks where there are none.
  void set_nodes(std::function<const Hierarchy*()> open) { open_nodes_ = std::move(open); }
  // Before the first call: whether some rank's values lie in a device's memory, as far as all ranks know; equal on all
  // ranks. Where an algorithm is forced, chunks have lengths for that.
  void set_device(bool device) { device_ = device; }
  // Before the first call: what communicators of the same ranks tell one another; group: group_of() them. Stays the
  // caller's.
  void share(SharedModels* shared, std::uint64_t group) { shared_ = shared, group_ = group; }
  // Opens them where that has not been tried. Collective; null on all ranks where there are none.
  const Hierarchy* nodes();
  const Hierarchy* hierarchy() const { return hierarchy_; }     // null: not needed yet, or none
  std::uint64_t measurements() const { return measurements_; }  // of the network, so far

 private:
  struct Measured {
    CodecCost cost;
    std::optional<CodecCost> halves;  // of ChoiceQuery::halves, once measured
    std::uint64_t calls = 0;
    std::map<SizeClass, Trials> trials;
  };
  SizeClass size_class(const ChoiceQuery&) const;
  void adopt(Transport&);
  void publish() const;
  Account::Known known(const Codec*, const SizeClass&) const;

  std::string forced_;
  int ranks_ = 1;
  bool device_ = false;
  NetworkModel network_;
  std::function<const Hierarchy*()> open_nodes_;
  const Hierarchy* hierarchy_ = nullptr;
  std::optional<HierarchyModel> hierarchy_model_;
  std::map<const Codec*, Measured> codecs_;
  std::map<std::pair<const Codec*, SizeClass>, Account> accounts_;  // as their trials
  SharedModels* shared_ = nullptr;
  std::uint64_t group_ = 0;
  std::shared_ptr<const Models> adopted_;
  std::uint64_t state_ = 0;               // another one where a choice may become another one
  bool early_ = false, counted_ = false;  // this call: is one of the first ones; calls_ has it
  std::uint64_t untried_ = kEarly;        // of its first calls, that begin no trials
  std::uint64_t tried_ = 0;               // calls that were trials
  std::uint64_t calls_ = 0, calls_of_group_ = 0,
                measurements_ = 0;  // calls_of_group_: before this communicator's first
};

}  // namespace crimp
