#include "collective/account.hpp"

namespace crimp {

TimeRecord Account::total(const Known& known) const {
  TimeRecord open = open_;
  if (open.calls > 0) {
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

void Account::close(const Known& known) {
  closed_ = total(known);
  open_ = {};
  open_bytes_ = 0;
}

}  // namespace crimp
