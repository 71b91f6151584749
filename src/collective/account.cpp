#include "collective/account.hpp"

#include <algorithm>

#include "collective/trials.hpp"

namespace crimp {

void Account::call(const Choice& choice, std::uint64_t elements, std::uint64_t plain_bytes, double s, bool again) {
  auto of = std::find_if(open_.begin(), open_.end(), [&](const auto& known) { return same(known.first, choice); });
  if (of == open_.end()) of = open_.insert(of, {choice, {}});
  of->second.add(elements, plain_bytes, s, again);
}

void Account::passed(std::uint64_t elements, std::uint64_t plain_bytes, double s, bool again) {
  open_passed_.add(elements, plain_bytes, s, again);
  if (elements == 0) return;
  const double element_s = s / static_cast<double>(elements);
  least_plain_s_ = least_plain_s_ > 0 ? std::min(least_plain_s_, element_s) : element_s;
}

Account::Found Account::found(const Known& known) {
  return {known.best_s, known.plain_s,
          known.trials ? known.trials->results() : std::vector<std::pair<Choice, double>>()};
}

void Account::learn(const Known& now) {
  if (now.best_s == found_.best_s && now.plain_s == found_.plain_s) return;
  if (found_.best_s > 0 && now.best_s != found_.best_s) {
    closed_ = total(found_, now.model);
    open_.clear();
    open_passed_ = {};
  }
  found_ = found(now);
}

// What was measured is not known any more while it is measured anew: it holds of the calls before.
TimeRecord Account::total(const Known& now) const {
  const bool held = found_.best_s > 0 && now.best_s == 0;
  return held ? total(found_, now.model) : total(found(now), now.model);
}

TimeRecord Account::total(const Found& found, const Curve* model) const {
  TimeRecord all = closed_;
  const auto add = [&](const Calls& of, double own_element_s, bool by_mpi) {
    if (of.calls == 0) return;
    const auto elements = static_cast<double>(of.elements), calls = static_cast<double>(of.calls);
    const double own_s = own_element_s > 0 ? own_element_s * elements : of.took_s;
    TimeRecord one{of.calls, of.elements, of.took_s, {}, {}, {}, of.again};
    const auto otherwise = [&](double s) { return TimeRecord::Otherwise{of.calls, of.took_s, own_s, s, of.again}; };
    if (found.best_s > 0) one.best = otherwise(found.best_s * elements);
    if (by_mpi) one.plain_measured = otherwise(own_s);
    else if (found.plain_s > 0) one.plain_measured = otherwise(found.plain_s * elements);
    else if (model && !model->empty()) {
      // The model draws long calls from short ones. A call of MPI's own has taken no less than its exchange.
      const double modelled = model->at(of.bytes / calls) * calls;
      const double most = least_plain_s_ > 0 ? least_plain_s_ * elements : modelled;
      one.plain_predicted = otherwise(std::min(modelled, most));
    }
    all += one;
  };
  for (const auto& [choice, calls] : open_) {
    const auto tried = std::find_if(found.of.begin(), found.of.end(),
                                    [&choice = choice](const auto& of) { return same(of.first, choice); });
    add(calls, tried == found.of.end() || Trials::failed(tried->second) ? 0 : tried->second, choice.plain);
  }
  add(open_passed_, found.plain_s, true);
  return all;
}

void Account::close(const Known& now) {
  closed_ = total(now);
  open_.clear();
  open_passed_ = {};
  found_ = {};
}

}  // namespace crimp
