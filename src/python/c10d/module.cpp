// The extension module crimp._c10d.
#include <pybind11/chrono.h>
#include <torch/extension.h>

#include <torch/csrc/utils/pybind.h>
#include <cstdio>

#include "backend.hpp"
#include "labels.hpp"
#include "mpi_process.hpp"

namespace crimp_torch {
namespace {

namespace py = pybind11;

bool left = false;

// After an exception of Python's a thread may still be inside MPI, which must not see the library taken down around it.
void leave_at_once() {
  if (!left) return;
  std::fflush(nullptr);
  _exit(1);
}

void end_process(bool orderly) {
  {
    const py::gil_scoped_release others;
    end_groups(orderly);
  }
  left = !orderly && mpi_runs();
  // The last one that is registered is called first, and mpi4py, imported behind us, has registered MPI_Finalize.
  if (left) Py_AtExit(&leave_at_once);
}

Backend& backend_of(const c10::intrusive_ptr<Base>& group) {
  auto* backend = dynamic_cast<Backend*>(group.get());
  TORCH_CHECK(backend, "crimp: this process group has another backend");
  return *backend;
}

void set_codec(const c10::intrusive_ptr<Base>& group, const std::string& pattern, c10::optional<std::string> spec) {
  Backend& backend = backend_of(group);
  backend.run_in_turn("crimp:set_codec", [&] {
    const auto turn = mpi_turn();
    check_mpi(crimp_set_codec(backend.communicator(), pattern.c_str(), spec ? spec->c_str() : nullptr),
              "crimp_set_codec");
  });
}

void set_learning_rate(const c10::intrusive_ptr<Base>& group, double rate) {
  Backend& backend = backend_of(group);
  backend.run_in_turn("crimp:set_learning_rate", [&] {
    const auto turn = mpi_turn();
    check_mpi(crimp_set_learning_rate(backend.communicator(), rate), "crimp_set_learning_rate");
  });
}

// What the files do not let be done is no exception: the program goes on.
bool save(const c10::intrusive_ptr<Base>& group, const std::string& directory) {
  Backend& backend = backend_of(group);
  int rc = MPI_SUCCESS;
  backend.run_in_turn("crimp:save", [&] {
    const auto turn = mpi_turn();
    rc = crimp_save(backend.communicator(), directory.c_str());
    if (rc != MPI_ERR_IO) check_mpi(rc, "crimp_save");
  });
  return rc == MPI_SUCCESS;
}

bool load(const c10::intrusive_ptr<Base>& group, const std::string& directory) {
  Backend& backend = backend_of(group);
  int rc = MPI_SUCCESS;
  backend.run_in_turn("crimp:load", [&] {
    const auto turn = mpi_turn();
    rc = crimp_load(backend.communicator(), directory.c_str(), nullptr);
    if (rc != MPI_ERR_NO_SUCH_FILE) check_mpi(rc, "crimp_load");
  });
  return rc == MPI_SUCCESS;
}

}  // namespace
}  // namespace crimp_torch

PYBIND11_MODULE(_c10d, module) {
  using namespace crimp_torch;
  const py::call_guard<py::gil_scoped_release> alone;
  module.def("version", &crimp_version);
  module.def(
      "start",
      [] {
        const MpiPlace place = start_mpi();
        return std::make_tuple(place.rank, place.size);
      },
      alone);
  module.def("runs", &mpi_runs);
  module.def("one_host", &one_host, alone);
  module.def(
      "share", [](const std::string& text) { return share(text); }, alone);
  module.def("addresses", &addresses);
  module.def("create", &Backend::create, alone);
  module.def("end", &end_process);
  module.def("set_codec", &set_codec, alone);
  module.def("set_learning_rate", &set_learning_rate, alone);
  module.def("save", &save, alone);
  module.def("load", &load, alone);
  py::class_<Label, std::shared_ptr<Label>>(module, "Label")
      .def(py::init<std::vector<std::string>, const std::vector<std::uint64_t>&, double>())
      .def_property_readonly("total", &Label::total);
  py::class_<Block>(module, "Block")
      .def_readonly("fitted", &Block::fitted)
      .def_readonly("most_other", &Block::most_other);
  module.def("enter_block", [](std::shared_ptr<Label> label, bool once) {
    return set_block({std::move(label), once});
  });
  module.def("leave_block", &set_block);
  module.def("enter_chain", &enter_chain);
  module.def("leave_chain", &leave_chain);
  Py_AtExit(&leave_at_once);  // for an end at which no place is left
}
