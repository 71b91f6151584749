#include "mpi/part_notes.hpp"

#include <string_view>

#include "core/history.hpp"
#include "core/report.hpp"
#include "core/trace.hpp"
#include "mpi/tensor_notes.hpp"

namespace crimp {
namespace {

// Which counts the part is the first of its call for.
CallRecord counted(CallRecord record, const PartEnd& end) {
  record.first = end.part == 0;
  for (std::size_t p = 0; p < end.part; ++p) {
    if (std::string_view(end.chosen.routes[p]->name) != record.algorithm) continue;
    record.first_by_algorithm = false;
    if (std::string_view(end.chosen.choices[p].why) == record.why) record.first_for_why = false;
  }
  return record;
}

}  // namespace

void note_part(const Context& context, Chooser& chooser, const PartEnd& end, int rank) noexcept {
  const PartPlan& part = end.call.parts[end.part].plan;
  const ChoiceQuery& query = end.call.parts[end.part].query;
  const RoutePlan& route = *end.chosen.routes[end.part];
  const Choice& choice = end.chosen.choices[end.part];
  const CollectiveResult& r = end.result;
  const std::uint64_t bytes_in = bytes_for_others(part, rank);
  const double took_s = seconds(end.ended - end.begun);
  if (context.times)
    context.report.note([&] {
      chooser.account(query).call(choice, query.count, query.plain_bytes, took_s, end.part != end.call.largest_part());
    });
  std::string label;
  if (context.trace) context.report.note([&] { label = label_of(*part.layout, part.dtype); });
  const char *const dtype = name_of(part.dtype), *const source = name_of(end.call.layout->source);
  if (context.trace)
    context.report.note([&] {
      context.trace->call({label, end.communicator, end.sequence, dtype, query.count, query.plain_bytes, bytes_in,
                           part.codec->spec(), route.name, choice.why, source, r.sent_bytes, r.received_bytes},
                          end.begun, end.ended);
    });
  context.report.note([&] {
    context.report.compressed(counted({part.codec->spec(), source, route.name, choice.why, choice.predicted_s,
                                       choice.plain_s, part.count * size_of(part.dtype), bytes_in, r.sent_bytes,
                                       r.received_bytes, r.encode_s, r.wire_s, r.decode_s, took_s, end.wait_s},
                                      end));
  });
  History* const history = context.report.history();
  if (history && rank == 0) context.report.note([&] { note_tensors(*history, part, source, bytes_in, r.sent_bytes); });
  if (history)
    context.report.note([&] {
      history->called(end.begun, end.ended,
                      {end.part == 0 ? 1.0 : 0.0, 0, static_cast<double>(bytes_in), static_cast<double>(r.sent_bytes),
                       r.encode_s, r.wire_s, r.decode_s, end.wait_s, 0});
    });
}

}  // namespace crimp
