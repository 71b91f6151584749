#include "mpi/call_notes.hpp"

#include <string>
#include <string_view>

#include "core/history.hpp"
#include "core/report.hpp"
#include "mpi/tensor_notes.hpp"

namespace crimp {
namespace {

// Which counts the part is the first of its call for.
void say_firsts(CallRecord& record, const PartEnd& end) {
  record.first = end.part == 0;
  for (std::size_t p = 0; p < end.part; ++p) {
    if (std::string_view(end.chosen.routes[p]->name) != record.algorithm) continue;
    record.first_by_algorithm = false;
    if (std::string_view(end.chosen.choices[p].why) == record.why) record.first_for_why = false;
  }
}

TimeBins::Amounts amounts_of(const CallRecord& r) {
  TimeBins::Amounts amounts{};
  amounts[TimeBins::calls] = r.first;
  amounts[TimeBins::bytes_in] = static_cast<double>(r.bytes_in);
  amounts[TimeBins::sent_bytes] = static_cast<double>(r.sent_bytes);
  amounts[TimeBins::encode_s] = r.encode_s;
  amounts[TimeBins::wire_s] = r.wire_s;
  amounts[TimeBins::decode_s] = r.decode_s;
  amounts[TimeBins::wait_s] = r.wait_s;
  return amounts;
}

}  // namespace

CallRecord record_of(const PartPlan& part, const char* algorithm, const CollectiveResult& result, int rank,
                     Clock::time_point begun, Clock::time_point ended) {
  return {.codec = part.codec->spec(),
          .algorithm = algorithm,
          .bytes = part.count * size_of(part.dtype),
          .bytes_in = bytes_for_others(part, rank),
          .sent_bytes = result.sent_bytes,
          .received_bytes = result.received_bytes,
          .encode_s = result.encode_s,
          .wire_s = result.wire_s,
          .decode_s = result.decode_s,
          .total_s = seconds(ended - begun)};
}

void note_call(const Context& context, Trace::Call call, const Layout& layout, Dtype dtype, Clock::time_point begun,
               Clock::time_point ended) noexcept {
  call.dtype = name_of(dtype);
  if (context.trace) {
    std::string label;
    context.report.note([&] { label = label_of(layout, dtype); });
    call.label = label;
    context.trace->call(call, begun, ended);
  }
  context.report.note([&] { context.report.compressed(call.record); });
}

void note_time(const Context& context, const CallRecord& record, Clock::time_point begun,
               Clock::time_point ended) noexcept {
  if (History* const history = context.report.history())
    context.report.note([&] { history->called(begun, ended, amounts_of(record)); });
}

void note_part(const Context& context, Chooser& chooser, const PartEnd& end, int rank) noexcept {
  const PartPlan& part = end.call.parts[end.part].plan;
  const ChoiceQuery& query = end.call.parts[end.part].query;
  const Choice& choice = end.chosen.choices[end.part];
  CallRecord record = record_of(part, end.chosen.routes[end.part]->name, end.result, rank, end.begun, end.ended);
  record.layout = name_of(end.call.layout->source);
  record.why = choice.why;
  record.predicted_s = choice.predicted_s;
  record.plain_s = choice.plain_s;
  record.wait_s = end.wait_s;
  say_firsts(record, end);
  if (context.times)
    context.report.note([&] {
      chooser.account(query).call(choice, query.count, query.plain_bytes, record.total_s,
                                  end.part != end.call.largest_part());
    });
  note_call(context,
            {.communicator = end.communicator,
             .call = end.sequence,
             .elements = query.count,
             .bytes = query.plain_bytes,
             .record = record},
            *part.layout, part.dtype, end.begun, end.ended);
  note_time(context, record, end.begun, end.ended);
  if (History* const history = context.report.history(); history && rank == 0)
    context.report.note([&] { note_tensors(*history, part, record.layout, record.bytes_in, record.sent_bytes); });
}

}  // namespace crimp
