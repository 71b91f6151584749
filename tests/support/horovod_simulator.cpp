#include "support/horovod_simulator.hpp"

#include <flatbuffers/flatbuffers.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace crimp::test {
namespace {

std::int64_t width(std::int8_t type) { return type == 6 ? 2 : type == 5 || type == 8 ? 8 : 4; }
std::int64_t padded(std::int64_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

HorovodSimulator::HorovodSimulator(const HorovodRun& run)
    : run_(run), random_(run.seed), ranks_(static_cast<std::size_t>(run.ranks)) {
  for (int i = 0; i < run.tensors; ++i) {
    Tensor t;
    t.name = "allreduce.layer" + std::to_string(i) + ".weight";
    t.count = run.equal_sizes ? 4097 : static_cast<std::int64_t>(1 + below(i % 4 == 3 ? 60 : 9000));
    if (run.mixed_types) t.type = below(3) == 0 ? 6 : below(5) == 0 ? 5 : 7;
    if (run.minima && i % 9 == 4) t.op = 3;
    if (run.adasum && i % 6 == 5) t.kind = adasum, t.op = 2, t.type = 7;
    if (run.allgathers && i % 7 == 6) {
      t.kind = allgather;
      t.name = "allgather.embedding" + std::to_string(i);
      t.count = static_cast<std::int64_t>(1 + below(5));
      t.row = static_cast<std::int64_t>(1 + below(100));
    }
    if (run.groups) {
      const int members = (run.tensors + run.groups - 1) / run.groups;
      if (i % (members * 3) < members * 2) {  // every third stretch of tensors is in no group
        t.group = i / members;
        const std::string base = "grouped_allreduce.layer" + std::to_string(t.group * members);
        t.name = base + "_" + std::to_string(i % members + 1) + "of" + std::to_string(members);
        if (groups_.size() <= static_cast<std::size_t>(t.group)) groups_.resize(static_cast<std::size_t>(t.group) + 1);
        groups_[static_cast<std::size_t>(t.group)].second.push_back(t.name);
      }
    }
    t.dims = {t.count};
    model_.push_back(t);
  }
  if (run_.separate_groups)  // a tensor in no group is one by itself
    for (Tensor& t : model_)
      if (t.group < 0) {
        t.group = static_cast<int>(groups_.size());
        groups_.push_back({t.name, {t.name}});
      }
}

void HorovodSimulator::plan() {
  if (run_.reshapes && below(4) == 0) {
    Tensor& t = model_[below(model_.size())];
    if (t.kind == allreduce) t.count += static_cast<std::int64_t>(1 + below(500)), t.dims = {t.count};
  }
  const bool last =
      run_.joins && steps_ % 20 == 19;  // the first rank has run out of data: the others take this step without it
  std::vector<Tensor> extra;
  if (run_.unnamed)
    for (int i = 0; i < 2; ++i) {
      Tensor t;
      t.name = "allreduce.noname." + std::to_string(++unnamed_);
      t.count = static_cast<std::int64_t>(1 + below(3000));
      t.dims = {t.count};
      extra.push_back(t);
    }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (last && r == 0) {
      ranks_[r].joined = true;
      continue;
    }
    // Backward order, with neighbours swapped here and there: ranks do not agree on it.
    std::vector<Tensor> mine(model_.rbegin(), model_.rend());
    if (last) std::erase_if(mine, [](const Tensor& t) { return t.kind == allgather; });
    for (std::size_t i = 1; i < mine.size(); ++i)
      if (mine[i].group < 0 && mine[i - 1].group < 0 && below(4) == 0) std::swap(mine[i], mine[i - 1]);
    mine.insert(mine.end(), extra.begin(), extra.end());
    ranks_[r].todo.assign(mine.begin(), mine.end());
  }
}

int HorovodSimulator::lookup(const Tensor& t) const {
  const auto it = known_.find(t.name);
  if (it == known_.end()) return 0;
  const Tensor& k = it->second.tensor;
  return k.kind == t.kind && k.type == t.type && k.dims == t.dims && it->second.answered_op == t.op &&
                 k.postscale == t.postscale
             ? 1
             : -1;
}

void HorovodSimulator::remember(const Answer& answer) {
  for (const Tensor& t : answer.all) {
    if (known_.count(t.name)) {
      age_.remove(t.name);
    } else {
      if (known_.size() == run_.capacity) {
        const std::string oldest = age_.front();
        age_.pop_front();
        known_.erase(oldest);
        *std::find(slots_.begin(), slots_.end(), oldest) = t.name;
        ++evictions_;
      } else {
        slots_.push_back(t.name);
      }
      // Adasum's answers and allgathers' carry no operation.
      known_[t.name] = {t, t.kind == allreduce ? t.op : std::int8_t{0}};
      if (t.kind == allgather) known_[t.name].answered_op = t.op;
    }
    age_.push_back(t.name);
  }
}

void HorovodSimulator::renumber() {
  if (!holes_) return;
  holes_ = false;
  slots_.assign(age_.begin(), age_.end());
}

void HorovodSimulator::pack(std::vector<Answer> in, std::vector<Answer>& out) const {
  std::vector<bool> gone(in.size());
  const auto bytes = [&](const Tensor& t) {
    const std::int64_t n = t.count * width(t.kind == allgather ? std::int8_t{7} : t.type);
    return run_.pads_counted ? padded(n) : n;
  };
  for (std::size_t h = 0; h < in.size(); ++h) {
    if (gone[h]) continue;
    Answer buffer = in[h];
    if (buffer.head.kind == allreduce || buffer.head.kind == adasum) {
      std::int64_t inside = bytes(buffer.head), passed_over = 0;
      for (std::size_t i = h + 1; i < in.size(); ++i) {
        if (gone[i]) continue;
        const Tensor &a = buffer.head, &b = in[i].head;
        if (a.kind == b.kind && a.type == b.type && a.op == b.op && a.postscale == b.postscale &&
            buffer.devices == in[i].devices && inside + bytes(b) <= run_.threshold) {
          inside += bytes(b);
          buffer.all.push_back(b);
          gone[i] = true;
          continue;
        }
        passed_over += b.kind == allgather ? b.count * run_.ranks * b.row * width(b.type)
                       : b.kind == join    ? 0
                                           : bytes(b);
        if (inside + passed_over > run_.threshold) break;
      }
    } else if (buffer.head.kind == allgather) {
      const auto gathered = [&](const Tensor& t) { return t.count * run_.ranks * t.row * width(t.type); };
      std::int64_t inside = gathered(buffer.head), passed_over = 0;
      for (std::size_t i = h + 1; i < in.size() && in[i].head.kind != join; ++i) {
        if (gone[i]) continue;
        if (in[i].head.kind == allgather && inside + gathered(in[i].head) <= run_.threshold) {
          inside += gathered(in[i].head);
          buffer.all.push_back(in[i].head);
          gone[i] = true;
          continue;
        }
        passed_over += in[i].head.kind == allgather ? gathered(in[i].head) : in[i].head.count * width(in[i].head.type);
        if (inside + passed_over > run_.threshold) break;
      }
    }
    out.push_back(std::move(buffer));
  }
}

std::vector<std::uint8_t> HorovodSimulator::serialise(const std::vector<Answer>& answers) const {
  flatbuffers::FlatBufferBuilder b;
  const auto field = [](int n) { return static_cast<flatbuffers::voffset_t>(4 + 2 * n); };
  std::vector<flatbuffers::Offset<void>> tables;
  for (const Answer& a : answers) {
    std::vector<std::string> names;
    std::vector<std::int64_t> sizes;
    for (const Tensor& t : a.all) {
      names.push_back(t.name);
      for (int r = 0; r < (t.kind == allgather ? run_.ranks : t.kind == join ? 0 : 1); ++r) sizes.push_back(t.count);
    }
    const auto name_vector = b.CreateVectorOfStrings(names);
    const auto size_vector = b.CreateVector(sizes);
    const auto device_vector = b.CreateVector(a.devices);
    const auto message = b.CreateString("");
    const auto start = b.StartTable();
    b.AddElement<std::int8_t>(field(0), a.head.kind, 0);
    b.AddOffset(field(1), name_vector);
    b.AddOffset(field(2), message);
    b.AddOffset(field(3), device_vector);
    b.AddOffset(field(4), size_vector);
    b.AddElement<std::int8_t>(field(5), a.head.kind == allgather || a.head.kind == join ? std::int8_t{0} : a.head.type,
                              0);
    b.AddElement<double>(field(6), 1.0, 0.0);
    b.AddElement<double>(field(7), a.head.postscale, 0.0);
    b.AddElement<std::int32_t>(field(8), 0, 0);
    b.AddElement<std::int8_t>(field(9), a.head.kind == allreduce ? a.head.op : std::int8_t{0}, 0);
    tables.emplace_back(b.EndTable(start));
  }
  const auto vector = b.CreateVector(tables);
  const auto start = b.StartTable();
  b.AddOffset(field(0), vector);
  b.AddElement<std::uint8_t>(field(1), 0, 0);
  b.Finish(flatbuffers::Offset<void>(b.EndTable(start)));
  std::vector<std::uint8_t> bytes(b.GetBufferPointer(), b.GetBufferPointer() + b.GetSize());
  bytes.push_back(0);  // sent with the zero behind a C string
  return bytes;
}

void HorovodSimulator::cycle(std::vector<HorovodEvent>& events) {
  const bool cache = cache_on_ && run_.capacity > 0;
  const std::size_t bits = slots_.size(), words = (bits + 3 + 63) / 64;
  std::map<std::string, std::size_t> bit;
  for (std::size_t i = 0; i < bits; ++i) bit[slots_[i]] = i;

  // What every rank says.
  std::vector<std::uint64_t> all(words, ~0ull), any(words, 0), seen(words, ~0ull);
  bool uncached = false, invalid = false;
  std::vector<std::deque<Tensor>> messages(ranks_.size());
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    RankState& rank = ranks_[r];
    messages[r].swap(rank.queue);
    std::set<std::size_t> mine, bad;
    bool more = rank.joined && !rank.join_sent;
    for (const Tensor& t : messages[r]) {
      const int found = cache ? lookup(t) : 0;
      if (found == 1) mine.insert(bit[t.name]);
      if (found == -1) bad.insert(bit[t.name]);
      more |= found != 1;
    }
    if (rank.joined)
      for (std::size_t i = 0; i < bits; ++i) mine.insert(i);
    for (const auto i : bad) mine.erase(i);
    std::vector<std::int64_t> vector(words);
    vector[0] = 1 | (more ? 0 : 2) | (bad.empty() ? 4 : 0);
    for (const auto i : mine)
      vector[(i + 3) / 64] |= std::int64_t{1} << ((i + 3) % 64), seen[(i + 3) / 64] &= ~(1ull << ((i + 3) % 64));
    for (const auto i : bad) any[i / 64] |= 1ull << (i % 64);
    if (cache && run_.gate) run_.gate(r, vector, events);
    for (std::size_t w = 0; w < words; ++w) all[w] &= static_cast<std::uint64_t>(vector[w]);
    uncached |= more;
    invalid |= !bad.empty();
  }

  std::vector<std::string> common;
  if (cache) {
    HorovodEvent e{HorovodEvent::ready_bits, {}, {}, {}};
    for (const auto w : all) e.words.push_back(static_cast<std::int64_t>(w));
    if (run_.timeline)
      for (const auto w : seen) e.words.push_back(static_cast<std::int64_t>(w));
    events.push_back(e);
    for (std::size_t i = 0; i < bits; ++i)
      if (all[(i + 3) / 64] >> ((i + 3) % 64) & 1) common.push_back(slots_[i]);
    if (invalid) {
      e.kind = HorovodEvent::invalid_bits;
      e.words.clear();
      for (const auto w : any) e.words.push_back(static_cast<std::int64_t>(w));
      events.push_back(e);
      for (std::size_t i = 0; i < bits; ++i)
        if (any[i / 64] >> (i % 64) & 1) {
          age_.remove(slots_[i]);
          known_.erase(slots_[i]);
          slots_[i].clear();
          holes_ = true;
          ++erasures_;
        }
    }
    const std::set<std::string> agreed(common.begin(), common.end());
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      std::deque<Tensor> send;
      for (Tensor& t : messages[r]) {
        if (lookup(t) != 1) send.push_back(std::move(t));
        else if (!agreed.count(t.name)) ranks_[r].queue.push_back(std::move(t));
      }
      messages[r].swap(send);
    }
  }

  const std::int32_t device = run_.pads_in_buffer ? 0 : -1;
  const std::vector<std::int32_t> of_all(ranks_.size(), device);
  const auto answer = [&](const Tensor& t, const std::vector<std::int32_t>& devices) {
    return Answer{t, {t}, devices};
  };
  const auto of_cache = [&](const std::string& name) { return answer(known_.at(name).tensor, of_all); };
  std::vector<Answer> list;
  if (cache && !uncached) {
    ++fast_;
    std::vector<std::string> order = common;
    const auto touch = [&](const std::string& name) { age_.remove(name), age_.push_back(name); };
    if (run_.separate_groups) {
      std::set<int> done;
      std::vector<std::string> rest;
      for (const auto& name : common) {
        const int group = known_.at(name).tensor.group;
        if (group < 0) rest.push_back(name);
        if (group < 0 || !done.insert(group).second) continue;
        std::vector<Answer> members;
        for (const auto& member : groups_[static_cast<std::size_t>(group)].second)
          touch(member), members.push_back(of_cache(member));
        pack(members, list);
      }
      order = rest;
    }
    std::vector<Answer> ready;
    for (const auto& name : order) touch(name), ready.push_back(of_cache(name));
    pack(ready, list);
  } else if (!cache || uncached) {
    ++slow_;
    std::vector<std::string> complete;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].joined && !ranks_[r].join_sent) ranks_[r].join_sent = true, ++joined_;
      for (const Tensor& t : messages[r]) {
        Waiting& w = table_[t.name];
        w.tensor = t;
        if (++w.ranks == run_.ranks - joined_) complete.push_back(t.name);
      }
    }
    if (joined_)
      for (const auto& [name, w] : table_)
        if (w.ranks == run_.ranks - joined_ && std::find(complete.begin(), complete.end(), name) == complete.end())
          complete.push_back(name);
    // As many as there are requests, each at its rank's number, if there is such a place.
    std::vector<std::int32_t> devices(ranks_.size() - static_cast<std::size_t>(joined_));
    for (std::size_t r = 0; r < devices.size(); ++r)
      if (!ranks_[r].join_sent) devices[r] = device;
    const auto take = [&](const std::string& name) {
      const Answer a = answer(table_.at(name).tensor, devices);
      table_.erase(name);
      return a;
    };
    std::set<int> done;
    if (run_.separate_groups) {
      std::vector<int> order;
      const auto note = [&](int group) {
        if (group >= 0 && done.insert(group).second) order.push_back(group);
      };
      for (const auto& name : complete) note(table_.at(name).tensor.group);
      for (const auto& name : common) note(known_.at(name).tensor.group);
      for (const int group : order) {
        std::vector<Answer> members;
        for (const auto& name : groups_[static_cast<std::size_t>(group)].second)
          members.push_back(table_.count(name) ? take(name) : of_cache(name));
        pack(members, list);
      }
    }
    std::vector<Answer> ready;
    if (joined_ < run_.ranks)
      for (const auto& name : common)
        if (!run_.separate_groups || !done.count(known_.at(name).tensor.group)) ready.push_back(of_cache(name));
    for (const auto& name : complete)
      if (table_.count(name)) ready.push_back(take(name));
    const bool over = joined_ == run_.ranks;
    if (over) {
      Tensor t;
      t.name = "join.noname";
      t.kind = join;
      ready.push_back(answer(t, {}));
      joined_ = 0;
      for (auto& rank : ranks_) rank.joined = rank.join_sent = false;
    }
    pack(ready, list);
    events.push_back({HorovodEvent::gathered, {}, {}, {}});
    events.push_back({HorovodEvent::broadcast, {}, serialise(list), {}});
    if (cache)
      for (const Answer& a : list)
        if (a.head.kind != join && a.devices.size() == ranks_.size()) remember(a);
  }
  renumber();

  for (const Answer& a : list) {
    if (a.head.kind != allreduce || a.head.op != 1 || a.head.type < 6) continue;
    HorovodEvent e{HorovodEvent::data, {}, {}, {}};
    e.on_device = run_.pads_in_buffer;
    e.type = a.head.type == 6 ? Dtype::f16 : a.head.type == 7 ? Dtype::f32 : Dtype::f64;
    const std::int64_t element = width(a.head.type);
    std::int64_t at = 0;
    for (const Tensor& t : a.all) {
      e.parts.push_back({t.name, static_cast<std::uint64_t>(at), static_cast<std::uint64_t>(t.count)});
      at += t.count;
      if (run_.pads_in_buffer && a.all.size() > 1) at = padded(at * element) / element;
    }
    e.count = static_cast<std::uint64_t>(at);
    events.push_back(e);
  }
}

// The coordinator's parameters, with whatever lies between the members of the struct.
void HorovodSimulator::tune(std::vector<HorovodEvent>& events) {
  struct Parameters {
    bool hierarchical_allreduce, hierarchical_allgather, torus_allreduce, cache_enabled;
    double threshold_mb, cycle_ms;
    bool active;
  };
  static_assert(sizeof(Parameters) == 32);
  HorovodEvent e{HorovodEvent::broadcast, {}, {}, {}};
  for (std::size_t i = 0; i < sizeof(Parameters); ++i) e.bytes.push_back(static_cast<std::uint8_t>(random_()));
  const double mb = below(8) ? static_cast<double>(below(1000)) / 4000 : 0;
  for (std::size_t i = 0; i < 4; ++i) e.bytes[i] = static_cast<std::uint8_t>(below(2));
  std::memcpy(&e.bytes[8], &mb, 8);
  const double cycle_ms = static_cast<double>(1 + below(99));
  std::memcpy(&e.bytes[16], &cycle_ms, 8);
  e.bytes[24] = static_cast<std::uint8_t>(below(2));
  events.push_back(e);
  const auto bytes = static_cast<std::int64_t>(mb * 1048576);
  run_.threshold = (bytes + run_.threshold_unit - 1) / run_.threshold_unit * run_.threshold_unit;
}

std::vector<HorovodEvent> HorovodSimulator::step() {
  std::vector<HorovodEvent> events;
  plan();
  for (bool busy = true; busy;) {
    for (auto& rank : ranks_) {
      // A rank's framework runs ahead or behind: some of its next tensors become ready in this cycle, groups as one.
      for (std::uint64_t n = below(5) ? below(12) : 0; n > 0 && !rank.todo.empty(); --n) {
        const int group = rank.todo.front().group;
        do {
          rank.queue.push_back(rank.todo.front());
          rank.todo.pop_front();
        } while (group >= 0 && !rank.todo.empty() && rank.todo.front().group == group);
      }
    }
    cycle(events);
    if (run_.tuned_every && below(static_cast<std::uint64_t>(run_.tuned_every)) == 0) tune(events);
    busy = !table_.empty();
    for (const auto& rank : ranks_) busy |= !rank.todo.empty() || !rank.queue.empty();
    if (!busy && run_.joins && ranks_[0].joined) {
      for (auto& rank : ranks_) rank.joined = true;
      busy = true;
    }
  }
  ++steps_;
  // Between steps Horovod idles; autotuning changes its parameters.
  for (auto idle = below(3); idle > 0; --idle) cycle(events);
  if (run_.cache_every && steps_ % run_.cache_every == 0) {
    cache_on_ = !cache_on_;
    known_.clear(), slots_.clear(), age_.clear();
    holes_ = false;
  }
  return events;
}

std::vector<std::uint8_t> response_list(const std::vector<std::pair<std::string, std::int64_t>>& tensors) {
  HorovodSimulator::Answer answer{{}, {}, {-1, -1}};
  for (const auto& [name, count] : tensors) {
    HorovodSimulator::Tensor t;
    t.name = name;
    t.count = count;
    answer.all.push_back(t);
  }
  return HorovodSimulator({}).serialise({answer});
}

}  // namespace crimp::test
