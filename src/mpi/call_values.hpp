// Where a call's values lie while it runs: where the caller has them, or, of device memory, in copies on the host.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "backend/device_access.hpp"
#include "backend/host_backend.hpp"
#include "collective/measure.hpp"
#include "collective/plan.hpp"
#include "memory/memory_resource.hpp"
#include "mpi/request.hpp"
#include "schedule/sample.hpp"
#include "schedule/sketch.hpp"

namespace crimp {

// A communicator's scratch and backends, one for each device that its calls have had values on.
struct SessionBuffers {
  struct Device {
    Device(const DevicePlugin&, int index, bool device_bodies);
    int index;
    std::unique_ptr<Backend> backend;
    Arena bodies, values, packed;      // packed: pinned
    std::set<std::uint64_t> prepared;  // routes that the backend has made room for
  };
  SessionBuffers(Workers& workers, bool mpi_takes_device) : host(workers), device_bodies(mpi_takes_device) {}
  // A device that had no memory for a call's kernels is left alone for some calls, twice as many each time.
  struct Full {
    int calls = 0, next = 8;
  };
  // Throws Error{device_failed} where there is no plugin, Error{out_of_memory}.
  Device& device_at(int index);
  void give_up(int index) noexcept;   // what is held there goes, and the next calls do without
  bool gives_up(int index) noexcept;  // asked once a call, of which it counts
  bool given_up(int index) const noexcept;
  Arena& staged(MemoryResource&, std::size_t bytes);  // or host memory where there is none
  void release();                                     // between calls: nothing is held

  HostBackend host;
  Arena arena;
  std::vector<std::uint8_t> room;  // of CallBuffers::room; kept also where the rest is released
  bool device_bodies;              // MPI takes device pointers
  std::map<int, std::unique_ptr<Device>> devices;
  std::map<int, Full> full;
  std::optional<Arena> pinned, pageable;  // copies of values
};

// Of a buffer of any memory that nothing writes. Throws Error{device_failed}.
Sample sample_of(const void* values, std::uint64_t count, Dtype);

// Of one call on one communicator. What fails throws Error{out_of_memory} or Error{device_failed}.
class CallValues {
 public:
  CallValues(const AllreduceRequest&, SessionBuffers&);
  ~CallValues();  // nothing touches memory behind it
  CallValues(const CallValues&) = delete;
  CallValues& operator=(const CallValues&) = delete;

  // What a codec costs this rank, on values of the call.
  CodecCost time(const PartPlan&, std::uint64_t elements);
  // Of the device that has the values, where its kernels can be used now; else null.
  Backend* kernels() noexcept;
  // A sketch of the values, before anything below.
  Sketch sketch() const;
  // Whether 65536 of a tensor's values in the host's memory are whole numbers, or also of one sign (`signs`; not all
  // the same), where a sketch of sparse ones sees zeros only. Mostly the first values say that they are not.
  bool counts(const Segment&, bool signs) const;
  // Before anything below. packed: bytes of packed() that will be taken. Where the device has no memory for kernels the
  // values go through the host's.
  void begin(std::span<const std::shared_ptr<const RoutePlan>>, std::uint64_t packed);
  // After an Error{out_of_memory} of what follows begin(): whether it was the device's, so that another begin() can do
  // without. Nothing of the call's values has changed then.
  bool leave_device(const char* why) noexcept;
  // Room in a device's backend for a route's chunks: once for all its calls.
  void prepare(const RoutePlan&);
  bool on_device() const { return from_.on_device() || to_.on_device(); }
  bool direct() const { return backend_ != &scratch_.host; }  // kernels work on the caller's buffers
  const std::string& through_host() const {
    return through_host_;
  }  // why values in device memory are copied to the host's; empty: they are not
  Backend& backend() const { return *backend_; }
  const void* send() const { return send_; }
  void* receive() const { return receive_; }
  // Scratch: of bodies; of what the backend works on; of the host.
  Arena& bodies() const { return direct() ? device_->bodies : scratch_.arena; }
  Arena& values() const { return direct() ? device_->values : scratch_.arena; }
  // So many bytes of the host's memory. Throws std::bad_alloc.
  std::uint8_t* room(std::uint64_t bytes) const {
    if (scratch_.room.size() < bytes) scratch_.room = {}, scratch_.room.resize(bytes);
    return scratch_.room.data();
  }
  Arena& packed() const { return direct() ? device_->packed : scratch_.arena; }
  // The results to the caller's buffer, where they are not there; segments that are not summed keep what they had.
  void write_back(const Layout&);

 private:
  const AllreduceRequest& request_;
  SessionBuffers& scratch_;
  std::string why_through_host(std::span<const std::shared_ptr<const RoutePlan>>, SessionBuffers::Device&) const;
  bool begin_on_device(std::span<const std::shared_ptr<const RoutePlan>>, std::uint64_t packed);

  PointerAttributes from_, to_;
  std::optional<DeviceAccess> at_;            // of the buffers, where one is on a device
  SessionBuffers::Device* device_ = nullptr;  // while kernels work on the caller's buffers
  Backend* backend_;
  const void* send_;
  void* receive_;
  std::string through_host_;
};

}  // namespace crimp
