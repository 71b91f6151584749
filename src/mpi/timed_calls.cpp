#include "mpi/timed_calls.hpp"

namespace crimp {

// Of Horovod's tensors it is their readiness that counts, and its own thread that calls (horovod/search.hpp).
void TimedCalls::ended(const std::shared_ptr<const Layout>& layout, std::uint64_t bytes,
                       Clock::time_point begun) noexcept {
  if (!keeps_steps_ || !layout || !layout->known() || layout->source == Layout::Source::negotiated) return;
  const auto since_any = [](Clock::time_point at) { return seconds(at.time_since_epoch()); };
  context_.report.note([&] { steps_.called(layout, bytes, since_any(begun), since_any(Clock::now())); });
}

// Among the codecs of its parts a call's time is shared out by elements.
void TimedCalls::left_ended() noexcept {
  if (left_.count == 0) return;
  const auto now = Clock::now();
  const double element_s = seconds(now - left_.begun) / static_cast<double>(left_.count);
  if (History* const history = context_.report.history())
    context_.report.note([&] {
      TimeBins::Amounts amounts{};
      amounts[TimeBins::passed] = 1;
      history->called(left_.begun, now, amounts);
    });
  const auto share = [&](std::uint64_t elements) { return element_s * static_cast<double>(elements); };
  if (left_.plan)
    context_.report.note([&] {
      for (const PlannedPart& part : left_.plan->parts)
        chooser_.account(part.query)
            .passed(part.query.count, part.query.plain_bytes, share(part.query.count),
                    &part != &left_.plan->parts[left_.plan->largest_part()]);
    });
  else left_.account->passed(left_.elements, left_.plain_bytes, share(left_.elements));
  ended(left_.layout, left_.bytes, left_.begun);
  left_ = {};
}

void TimedCalls::say_until_now() noexcept {
  context_.report.note([&] {
    TimeRecord all;
    for (const Chooser::Times& times : chooser_.times()) all += times.of;
    context_.report.times_until_now(this, all);
  });
}

void TimedCalls::note_in(Report& report) const {
  if (context_.times) report.note([&] { report.times_ended(this); });
  if (context_.times)
    report.note([&] {
      for (const Chooser::Times& times : chooser_.times())
        report.times(times.codec->spec(), times.from_elements, times.of);
    });
  report.note([&] {
    if (const auto trace = steps_.trace()) report.steps(trace->json());
  });
}

}  // namespace crimp
