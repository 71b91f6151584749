#include "backend.hpp"

#include <pybind11/pybind11.h>

#include <algorithm>
#include <exception>

#include "labels.hpp"
#include "mpi_process.hpp"
#include "reduction.hpp"
#include "sums.hpp"

namespace crimp_torch {
namespace {

using c10d::OpType;

// Communicators live until the end: freeing one is collective, and Python's collector runs when it likes. What Crimp
// keeps of theirs goes with the group.
struct Groups {
  std::mutex mutex;
  std::vector<Backend*> living;
  std::vector<MPI_Comm> communicators;  // in the order of their making
  MPI_Comm whole = MPI_COMM_NULL;       // of the latest group of all ranks, whose numbers other groups' members are
};

Groups& groups() {
  static auto& all = *new Groups;  // used until the very end of the process
  return all;
}

// A name's own tag, so that groups which are made at one time do not meet.
int tag_of(const std::string& name) {
  std::uint32_t hash = 2166136261u;
  for (const unsigned char c : name) hash = (hash ^ c) * 16777619u;
  return static_cast<int>(hash & 0x7fff);
}

MPI_Comm whole_group(int rank) {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &comm), "MPI_Comm_split");
  return comm;
}

MPI_Comm part_of(MPI_Comm whole, const std::vector<int>& members, const std::string& name) {
  MPI_Group all = MPI_GROUP_NULL, chosen = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  int ranks = 0;
  check_mpi(MPI_Comm_size(whole, &ranks), "MPI_Comm_size");
  for (const int one : members)
    TORCH_CHECK(one >= 0 && one < ranks, "crimp: the process group '", name, "' has rank ", one, " and MPI has ", ranks,
                " ranks");
  check_mpi(MPI_Comm_group(whole, &all), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &chosen), "MPI_Group_incl");
  const int code = MPI_Comm_create_group(whole, chosen, tag_of(name), &comm);
  MPI_Group_free(&chosen);
  MPI_Group_free(&all);
  check_mpi(code, "MPI_Comm_create_group");
  return comm;
}

// One work for all, which fails where one of them does; the others run all the same, because other ranks are in them.
template <class Do>
void each(std::size_t n, const Do& one) {
  std::exception_ptr failed;
  for (std::size_t i = 0; i < n; ++i) try {
      one(i);
    } catch (...) {
      if (!failed) failed = std::current_exception();
    }
  if (failed) std::rethrow_exception(failed);
}

}  // namespace

c10::intrusive_ptr<Base> Backend::create(int rank, int size, const std::vector<int>& members, const std::string& name,
                                         std::chrono::milliseconds timeout) {
  Groups& all = groups();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto turn = mpi_turn();
  const bool whole = members.empty();
  // Where another backend has the default group its numbers are MPI's, or the check below fails.
  const MPI_Comm from = all.whole == MPI_COMM_NULL ? MPI_COMM_WORLD : all.whole;
  const MPI_Comm comm = whole ? whole_group(rank) : part_of(from, members, name);
  TORCH_CHECK(comm != MPI_COMM_NULL, "crimp: rank ", rank, " of the process group '", name,
              "' is not among its members in MPI");
  if (whole) all.whole = comm;
  int here = -1;
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm, &here), "MPI_Comm_rank");
  all.communicators.push_back(comm);
  TORCH_CHECK(here == rank, "crimp: this is rank ", rank, " of the process group and rank ", here, " of MPI's");
  return c10::make_intrusive<Backend>(rank, size, comm, timeout);
}

Backend::Backend(int rank, int size, MPI_Comm comm, std::chrono::milliseconds timeout)
    : Base(rank, size), comm_(comm), timeout_(timeout) {
  groups().living.push_back(this);  // create() holds the mutex
}

Backend::~Backend() {
  {
    const std::lock_guard<std::mutex> lock(groups().mutex);
    auto& living = groups().living;
    living.erase(std::remove(living.begin(), living.end(), this), living.end());
  }
  // Without a turn it stays until the end: a wait for another group's call might be one for another rank.
  const auto last = [comm = comm_] {
    if (const auto turn = try_mpi_turn()) crimp_forget(comm);
  };
  // The last works may want the interpreter for what was chained to their futures.
  if (Py_IsInitialized() && PyGILState_Check()) {
    pybind11::gil_scoped_release others;
    queue_->finish(last);
  } else {
    queue_->finish(last);
  }
}

c10::intrusive_ptr<QueuedWork> Backend::put(OpType type, const char* title, Tensors outputs,
                                            std::function<void()> task) {
  settle(outputs);
  auto work = c10::make_intrusive<QueuedWork>(type, title, std::move(outputs), std::move(task));
  ++calls_;
  queue_->put(work);
  return work;
}

void Backend::run_in_turn(const char* title, std::function<void()> task) {
  put(OpType::UNKNOWN, title, {}, std::move(task))->wait();
}

WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = only(tensors, "broadcast");
  return put(OpType::BROADCAST, "crimp:broadcast", tensors, [=, root = options.rootRank, comm = comm_] {
    HostTensor host(tensor);
    {
      const auto turn = mpi_turn();
      check_mpi(MPI_Bcast(host.data(), mpi_count(host.host().numel()), element_type(host.host()),
                          static_cast<int>(root), comm),
                "MPI_Bcast");
    }
    host.give_back();
  });
}

WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor tensor = only(tensors, "allreduce");
  const Reduction r = reduction(tensor.scalar_type(), options.reduceOp);
  auto label = r.gradient ? label_for(static_cast<std::uint64_t>(tensor.numel())) : nullptr;
  return put(OpType::ALLREDUCE, "crimp:all_reduce", tensors,
             [=, size = getSize(), comm = comm_] { all_reduce(tensor, r, label.get(), size, comm); });
}

WorkPtr Backend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  std::vector<Reduction> how;
  for (const at::Tensor& one : tensors) how.push_back(reduction(one.scalar_type(), options.reduceOp));
  return put(OpType::ALLREDUCE_COALESCED, "crimp:all_reduce", tensors, [=, size = getSize(), comm = comm_] {
    each(tensors.size(), [&](std::size_t i) { all_reduce(tensors[i], how[i], nullptr, size, comm); });
  });
}

WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor tensor = only(tensors, "reduce");
  const Reduction r = reduction(tensor.scalar_type(), options.reduceOp);
  const bool is_root = options.rootRank == getRank();
  return put(OpType::REDUCE, "crimp:reduce", tensors, [=, root = options.rootRank, size = getSize(), comm = comm_] {
    HostTensor host(tensor, r.values);
    {
      const auto turn = mpi_turn();
      check_mpi(MPI_Reduce(is_root ? MPI_IN_PLACE : host.data(), host.data(), mpi_count(host.host().numel()), r.type,
                           r.op, static_cast<int>(root), comm),
                "MPI_Reduce");
    }
    if (!is_root) return;
    if (r.averages) divide(host.host(), size);
    host.give_back();
  });
}

WorkPtr Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions&) {
  const at::Tensor input = only(inputs, "all_gather");
  TORCH_CHECK(outputs.size() == 1 && static_cast<int>(outputs[0].size()) == getSize(),
              "crimp: all_gather needs a tensor for each rank");
  Tensors to = outputs[0];
  check_alike(to, input, "all_gather");
  return put(OpType::ALLGATHER, "crimp:all_gather", to, [to, input, comm = comm_]() mutable {
    const at::Tensor all = buffer_for(input.numel() * static_cast<std::int64_t>(to.size()), input);
    all_gather(all, input, comm);
    part(all, to);
  });
}

WorkPtr Backend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) {
  check_parts(output, input, getSize(), "all_gather_into_tensor");
  return put(OpType::_ALLGATHER_BASE, "crimp:all_gather_into_tensor", {output},
             [to = output, from = input, comm = comm_] { all_gather(to, from, comm); });
}

WorkPtr Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const at::Tensor input = only(inputs, "gather");
  const bool is_root = options.rootRank == getRank();
  Tensors to;
  if (is_root) {
    TORCH_CHECK(outputs.size() == 1 && static_cast<int>(outputs[0].size()) == getSize(),
                "crimp: gather needs a tensor for each rank on the root");
    to = outputs[0];
    check_alike(to, input, "gather");
  }
  return put(OpType::GATHER, "crimp:gather", to, [=, root = options.rootRank, comm = comm_]() mutable {
    HostTensor from(input);
    const int count = mpi_count(input.numel());
    const MPI_Datatype type = element_type(input);
    at::Tensor all = buffer_for(is_root ? input.numel() * static_cast<std::int64_t>(to.size()) : 0, input);
    {
      const auto turn = mpi_turn();
      check_mpi(MPI_Gather(from.data(), count, type, all.data_ptr(), count, type, static_cast<int>(root), comm),
                "MPI_Gather");
    }
    if (is_root) part(all, to);
  });
}

WorkPtr Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  const at::Tensor output = only(outputs, "scatter");
  const bool is_root = options.rootRank == getRank();
  Tensors from;
  if (is_root) {
    TORCH_CHECK(inputs.size() == 1 && static_cast<int>(inputs[0].size()) == getSize(),
                "crimp: scatter needs a tensor for each rank on the root");
    from = inputs[0];
    check_alike(from, output, "scatter");
  }
  return put(OpType::SCATTER, "crimp:scatter", outputs, [=, root = options.rootRank, comm = comm_] {
    HostTensor to(output);
    const at::Tensor all = is_root ? joined(from) : buffer_for(0, output);
    const int count = mpi_count(output.numel());
    const MPI_Datatype type = element_type(output);
    {
      const auto turn = mpi_turn();
      check_mpi(MPI_Scatter(all.data_ptr(), count, type, to.data(), count, type, static_cast<int>(root), comm),
                "MPI_Scatter");
    }
    to.give_back();
  });
}

WorkPtr Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                const c10d::ReduceScatterOptions& options) {
  const at::Tensor output = only(outputs, "reduce_scatter");
  TORCH_CHECK(inputs.size() == 1 && static_cast<int>(inputs[0].size()) == getSize(),
              "crimp: reduce_scatter needs a tensor for each rank");
  const Tensors from = inputs[0];
  check_alike(from, output, "reduce_scatter");
  const Reduction r = reduction(output.scalar_type(), options.reduceOp);
  auto label = scattered_label(output, r, getSize());
  return put(OpType::REDUCE_SCATTER, "crimp:reduce_scatter", outputs, [=, size = getSize(), comm = comm_] {
    reduce_scatter_block(output, joined(from), r, label.get(), size, comm);
  });
}

WorkPtr Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                      const c10d::ReduceScatterOptions& options) {
  check_parts(input, output, getSize(), "reduce_scatter_tensor");
  const Reduction r = reduction(output.scalar_type(), options.reduceOp);
  auto label = scattered_label(output, r, getSize());
  return put(OpType::_REDUCE_SCATTER_BASE, "crimp:reduce_scatter_tensor", {output},
             [=, to = output, from = input, size = getSize(), comm = comm_] {
               reduce_scatter_block(to, from, r, label.get(), size, comm);
             });
}

#if TORCH_VERSION_MAJOR >= 2
WorkPtr Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions&) {
  for (std::size_t i = 0; i < outputs.size(); ++i)
    check_parts(outputs[i], inputs.at(i), getSize(), "all_gather_into_tensor");
  return put(OpType::_ALLGATHER_BASE, "crimp:all_gather_into_tensor", outputs,
             [to = outputs, from = inputs, comm = comm_] {
               each(to.size(), [&](std::size_t i) { all_gather(to[i], from[i], comm); });
             });
}

WorkPtr Backend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::ReduceScatterOptions& options) {
  std::vector<Reduction> how;
  std::vector<std::shared_ptr<const Label>> labels;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    check_parts(inputs.at(i), outputs[i], getSize(), "reduce_scatter_tensor");
    how.push_back(reduction(outputs[i].scalar_type(), options.reduceOp));
    labels.push_back(scattered_label(outputs[i], how[i], getSize()));
  }
  return put(OpType::_REDUCE_SCATTER_BASE, "crimp:reduce_scatter_tensor", outputs,
             [=, to = outputs, from = inputs, size = getSize(), comm = comm_] {
               each(to.size(),
                    [&](std::size_t i) { reduce_scatter_block(to[i], from[i], how[i], labels[i].get(), size, comm); });
             });
}
#endif

WorkPtr Backend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                               std::vector<int64_t>& input_splits, const c10d::AllToAllOptions&) {
  TORCH_CHECK(output.scalar_type() == input.scalar_type(), "crimp: alltoall takes tensors of one type");
  const Splits sent = splits_of(input, input_splits, getSize()), got = splits_of(output, output_splits, getSize());
  return put(OpType::ALLTOALL_BASE, "crimp:all_to_all", {output}, [=, to = output, from = input, comm = comm_] {
    HostTensor host_from(from), host_to(to);
    const MPI_Datatype type = element_type(from);
    {
      const auto turn = mpi_turn();
      check_mpi(MPI_Alltoallv(host_from.data(), sent.counts.data(), sent.offsets.data(), type, host_to.data(),
                              got.counts.data(), got.offsets.data(), type, comm),
                "MPI_Alltoallv");
    }
    host_to.give_back();
  });
}

WorkPtr Backend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) {
  TORCH_CHECK(static_cast<int>(outputs.size()) == getSize() && static_cast<int>(inputs.size()) == getSize(),
              "crimp: all_to_all needs a tensor for each rank");
  const Splits sent = splits_of(inputs), got = splits_of(outputs);
  return put(OpType::ALLTOALL, "crimp:all_to_all", outputs, [=, to = outputs, from = inputs, comm = comm_]() mutable {
    const at::Tensor out = joined(from);
    at::Tensor in = buffer_for(got.offsets.back() + got.counts.back(), to[0]);
    const MPI_Datatype type = element_type(out);
    {
      const auto turn = mpi_turn();
      check_mpi(MPI_Alltoallv(out.data_ptr(), sent.counts.data(), sent.offsets.data(), type, in.data_ptr(),
                              got.counts.data(), got.offsets.data(), type, comm),
                "MPI_Alltoallv");
    }
    part(in, to);
  });
}

WorkPtr Backend::barrier(const c10d::BarrierOptions&) {
  return put(OpType::BARRIER, "crimp:barrier", {}, [comm = comm_] {
    const auto turn = mpi_turn();
    check_mpi(MPI_Barrier(comm), "MPI_Barrier");
  });
}

WorkPtr Backend::send(Tensors& tensors, int to, int tag) {
  const at::Tensor& tensor = only(tensors, "send");
  auto work = c10::make_intrusive<MessageWork>(OpType::SEND, "crimp:send", HostTensor(tensor), timeout_);
  const auto turn = mpi_turn();
  check_mpi(MPI_Isend(work->data(), mpi_count(tensor.numel()), element_type(tensor), to, tag, comm_, work->request()),
            "MPI_Isend");
  return work;
}

WorkPtr Backend::receive(Tensors& tensors, int from, int tag, OpType type) {
  const at::Tensor& tensor = only(tensors, "recv");
  auto work = c10::make_intrusive<MessageWork>(type, "crimp:recv", HostTensor(tensor), timeout_);
  const auto turn = mpi_turn();
  check_mpi(MPI_Irecv(work->data(), mpi_count(tensor.numel()), element_type(tensor), from, tag, comm_, work->request()),
            "MPI_Irecv");
  return work;
}

WorkPtr Backend::recv(Tensors& tensors, int from, int tag) { return receive(tensors, from, tag, OpType::RECV); }

WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, MPI_ANY_SOURCE, tag, OpType::RECVANYSOURCE);
}

void end_groups(bool orderly) {
  // What is chained to a group's last works may destroy that group, or another one.
  std::vector<std::shared_ptr<WorkQueue>> queues;
  {
    const std::lock_guard<std::mutex> lock(groups().mutex);
    for (const Backend* one : groups().living) queues.push_back(one->queue_);
  }
  for (const auto& one : queues) orderly ? one->finish() : one->leave();
  if (!orderly || !mpi_runs()) return;
  const auto turn = last_mpi_turn();
  for (MPI_Comm& comm : groups().communicators) MPI_Comm_free(&comm);
  groups().communicators.clear();
  groups().whole = MPI_COMM_NULL;
  finalize_mpi();
}

}  // namespace crimp_torch
