#include "collective/account.hpp"

namespace crimp {

// What was measured is not known any more while it is measured anew: it holds of the calls before.
const Account::Known& Account::of_open(const Known& now) const {
  return known_.best_s > 0 && now.best_s == 0 ? known_ : now;
}

void Account::learn(const Known& now) {
  if (known_.best_s > 0 && now.best_s != known_.best_s) close(known_);
  known_ = now;
}

TimeRecord Account::total(const Known& now) const {
  TimeRecord open = open_;
  if (open.calls > 0) {
    const Known& known = of_open(now);
    const auto elements = static_cast<double>(open.elements), calls = static_cast<double>(open.calls);
    if (known.best_s > 0) open.best = {open.calls, open.took_s, known.best_s * elements};
    if (known.plain_s > 0) open.plain_measured = {open.calls, open.took_s, known.plain_s * elements};
    else if (known.model && !known.model->empty())
      open.plain_predicted = {open.calls, open.took_s, known.model->at(open_bytes_ / calls) * calls};
  }
  TimeRecord all = closed_;
  all += open;
  return all;
}

void Account::close(const Known& now) {
  closed_ = total(now);
  open_ = {};
  open_bytes_ = 0;
  known_ = {};
}

}  // namespace crimp
