#include "mpi/part_notes.hpp"

#include "core/history.hpp"
#include "core/report.hpp"
#include "mpi/tensor_notes.hpp"

namespace crimp {

void note_part(const Context& context, Chooser& chooser, const PartEnd& end, int rank) noexcept {
  const PartPlan& part = end.part.plan;
  const ChoiceQuery& query = end.part.query;
  const CollectiveResult& r = end.result;
  const std::uint64_t bytes_in = bytes_for_others(part, rank);
  const double took_s = seconds(end.ended - end.begun);
  if (context.times)
    context.report.note([&] { chooser.account(query).call(end.choice, query.count, query.plain_bytes, took_s); });
  std::string label;
  if (context.trace) context.report.note([&] { label = label_of(*part.layout, part.dtype); });
  const char *const dtype = name_of(part.dtype), *const source = name_of(end.call.layout->source);
  if (context.trace)
    context.report.note([&] {
      context.trace->call({label, end.communicator, end.sequence, dtype, query.count, query.plain_bytes, bytes_in,
                           part.codec->spec(), end.route.name, end.choice.why, source, r.sent_bytes, r.received_bytes},
                          end.begun, end.ended);
    });
  context.report.note([&] {
    context.report.compressed({part.codec->spec(), source, end.route.name, end.choice.why, end.choice.predicted_s,
                               end.choice.plain_s, query.plain_bytes, bytes_in, r.sent_bytes, r.received_bytes,
                               r.encode_s, r.wire_s, r.decode_s, took_s, end.wait_s});
  });
  History* const history = context.report.history();
  if (history && rank == 0) context.report.note([&] { note_tensors(*history, part, source, bytes_in, r.sent_bytes); });
  if (history)
    context.report.note([&] {
      history->called(end.begun, end.ended,
                      {end.first ? 1.0 : 0.0, 0, static_cast<double>(bytes_in), static_cast<double>(r.sent_bytes),
                       r.encode_s, r.wire_s, r.decode_s, end.wait_s, 0});
    });
}

}  // namespace crimp
