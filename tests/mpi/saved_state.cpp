// A little training that can be interrupted, and what residuals still owe, for saved_state.py:
//
//   mpi_saved_state train FROM TO WEIGHTS [save=DIRECTORY] [load=DIRECTORY] [slow]
//     steps FROM + 1 to TO, one call each. WEIGHTS: a directory in which rank 0 leaves the weights after each step, as
//     any training leaves checkpoints; begun anew where FROM is 0. Says "loss STEP <bits>" of every step.
//   mpi_saved_state owe STEPS FILE save=DIRECTORY
//     some steps of gradients; FILE receives what they add up to beyond the results: what is owed.
//   mpi_saved_state drain FILE load=DIRECTORY
//     calls with zeros until nothing comes any more must give what is owed, on however many ranks.
//   mpi_saved_state rollback DIRECTORY
//     steps, saving, more steps, loading: those come again.
//   mpi_saved_state extents DIRECTORY
//     with powersgd: what the program says of a matrix stands when something else is loaded.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "check.hpp"
#include "crimp/crimp.h"

using check::rank, check::size;

namespace {

struct Tensor {
  const char* name;
  std::size_t count;
};
constexpr Tensor kTensors[] = {{"a.weight", 30000}, {"b.weight", 12345}, {"c.weight", 2001}};
constexpr std::size_t kAll = 30000 + 12345 + 2001;

std::string option(int argc, char** argv, const std::string& name) {
  for (int i = 1; i < argc; ++i)
    if (std::string(argv[i]).rfind(name + "=", 0) == 0) return argv[i] + name.size() + 1;
  return "";
}

void reduce(std::vector<float>& values) {
  std::vector<crimp_segment> segments;
  for (const Tensor& t : kTensors) segments.push_back({t.name, t.count});
  CHECK(crimp_allreduce(MPI_IN_PLACE, values.data(), values.size(), CRIMP_FLOAT32, MPI_COMM_WORLD, segments.data(),
                        segments.size()) == MPI_SUCCESS);
}

void load(const std::string& directory) {
  if (directory.empty()) return;
  std::uint64_t tensors = 0;
  CHECK(crimp_load(MPI_COMM_WORLD, directory.c_str(), &tensors) == MPI_SUCCESS);
  if (size > 1) CHECK(tensors >= 3, "%d", static_cast<int>(tensors));
}

void save(const std::string& directory) {
  if (!directory.empty()) CHECK(crimp_save(MPI_COMM_WORLD, directory.c_str()) == MPI_SUCCESS);
}

// Of |w - where a rank's data would have it|^2 / 2, on some of the data.
float gradient(const std::vector<float>& weights, std::size_t i, int step) {
  const auto wanted = static_cast<float>(check::value(i, rank));
  const auto noise = static_cast<float>(check::value(i, rank, static_cast<unsigned>(step) + 100));
  return weights[i] - wanted + 0.3f * noise;
}

void train(int from, int to, const std::string& weights_at, bool slow) {
  std::vector<float> weights(kAll), sum(kAll);
  const auto file = [&](int step) { return weights_at + "/weights." + std::to_string(step); };
  const auto bytes = static_cast<std::streamsize>(kAll * sizeof(float));
  if (from > 0) {
    std::ifstream in(file(from), std::ios::binary);
    CHECK(static_cast<bool>(in.read(reinterpret_cast<char*>(weights.data()), bytes)), "%s", file(from).c_str());
  }
  for (int step = from + 1; step <= to; ++step) {
    for (std::size_t i = 0; i < kAll; ++i) sum[i] = gradient(weights, i, step);
    reduce(sum);
    double loss = 0;
    for (std::size_t i = 0; i < kAll; ++i) {
      weights[i] -= 0.1f * sum[i] / static_cast<float>(size);
      loss += static_cast<double>(sum[i]) * static_cast<double>(sum[i]);
    }
    if (rank == 0) {
      std::ofstream(file(step), std::ios::binary).write(reinterpret_cast<const char*>(weights.data()), bytes);
      std::printf("loss %d %a\n", step, loss);
      std::fflush(stdout);
    }
    if (slow) usleep(20000);
  }
  CHECK(check::identical(weights.data(), kAll * sizeof(float), MPI_COMM_WORLD));
}

void owe(int steps, const std::string& to) {
  std::vector<float> values(kAll);
  std::vector<double> given(kAll), owed(kAll), all(kAll);
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < kAll; ++i) {
      values[i] = static_cast<float>(check::value(i, rank, static_cast<unsigned>(step)));
      given[i] += static_cast<double>(values[i]);
    }
    reduce(values);
    for (std::size_t i = 0; i < kAll; ++i) owed[i] -= static_cast<double>(values[i]);
  }
  MPI_Pcontrol(0);  // Crimp would compress this sum
  MPI_Reduce(given.data(), all.data(), static_cast<int>(kAll), MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  MPI_Pcontrol(1);
  if (rank != 0) return;
  for (std::size_t i = 0; i < kAll; ++i) owed[i] += all[i];
  std::ofstream(to, std::ios::binary)
      .write(reinterpret_cast<const char*>(owed.data()), static_cast<std::streamsize>(kAll * sizeof(double)));
}

// `part`: how much of it may be missing: 0 where residuals are floats.
void drain(const std::string& from, double part) {
  std::vector<double> owed(kAll), got(kAll);
  std::ifstream(from, std::ios::binary)
      .read(reinterpret_cast<char*>(owed.data()), static_cast<std::streamsize>(kAll * sizeof(double)));
  std::vector<float> values(kAll);
  for (int call = 0; call < 400; ++call) {
    std::fill(values.begin(), values.end(), 0.0f);
    reduce(values);
    for (std::size_t i = 0; i < kAll; ++i) got[i] += static_cast<double>(values[i]);
  }
  double most = 0, wrong = 0, norm = 0;
  for (std::size_t i = 0; i < kAll; ++i) {
    most = std::max(most, std::abs(owed[i]));
    norm += owed[i] * owed[i];
    wrong += (owed[i] - got[i]) * (owed[i] - got[i]);
    if (part == 0) CHECK(std::abs(owed[i] - got[i]) < 1e-3, "element %zu: %g owed, %g given", i, owed[i], got[i]);
  }
  CHECK(most > 0.5, "%g", most);  // else there was nothing to see
  CHECK(std::sqrt(wrong / norm) <= part + 1e-3, "%g", std::sqrt(wrong / norm));
  if (rank == 0) std::printf("drained: error %g of a norm of %g\n", std::sqrt(wrong), std::sqrt(norm));
}

void rollback(const std::string& directory) {
  const auto steps = [](int from, int to) {
    std::vector<float> all, values(kAll);
    for (int step = from; step < to; ++step) {
      for (std::size_t i = 0; i < kAll; ++i)
        values[i] = static_cast<float>(check::value(i, rank, static_cast<unsigned>(step)));
      reduce(values);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  steps(0, 6);
  save(directory);
  const auto first = steps(6, 14), control = steps(6, 14);
  CHECK(first != control, "what is kept does not matter here");
  load(directory);
  CHECK(first == steps(6, 14), "the steps after loading are others than those after saving");
}

// A matrix of rank 1 comes back whole where its extents are known.
void extents(const std::string& directory) {
  constexpr std::size_t kRows = 200, kCols = 150;
  std::vector<float> sum(kRows * kCols);
  const auto element = [](std::size_t i) { return check::value(i / kCols, 0, 1) * check::value(i % kCols, 0, 2); };
  const auto step = [&] {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = static_cast<float>(element(i) * (rank + 1));
    const crimp_segment segment{"matrix", sum.size()};
    CHECK(crimp_allreduce(MPI_IN_PLACE, sum.data(), sum.size(), CRIMP_FLOAT32, MPI_COMM_WORLD, &segment, 1) ==
          MPI_SUCCESS);
    double worst = 0;
    for (std::size_t i = 0; i < sum.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(sum[i]) - element(i) * size * (size + 1) / 2));
    return worst;
  };
  CHECK(crimp_set_extents(MPI_COMM_WORLD, "matrix", 120, 250) == MPI_SUCCESS);
  CHECK(step() > 0.1, "other extents do not matter here");
  save(directory);
  CHECK(crimp_set_extents(MPI_COMM_WORLD, "matrix", kRows, kCols) == MPI_SUCCESS);
  CHECK(step() < 1e-4);
  CHECK(crimp_load(MPI_COMM_WORLD, directory.c_str(), nullptr) == MPI_SUCCESS);
  CHECK(step() < 1e-4, "the program's extents are forgotten");
}

// What cannot be, on all ranks alike and without an error handler.
void refused(const std::string& directory) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  std::vector<float> values(kAll, 1.0f);
  reduce(values);
  int error_class = 0;
  std::uint64_t tensors = 7;
  int rc = crimp_load(MPI_COMM_WORLD, (directory + "/none").c_str(), &tensors);
  MPI_Error_class(rc, &error_class);
  CHECK(error_class == MPI_ERR_NO_SUCH_FILE);
  CHECK(tensors == 0);
  rc = crimp_save(MPI_COMM_WORLD, (directory + "/none/parent").c_str());
  MPI_Error_class(rc, &error_class);
  CHECK(error_class == MPI_ERR_IO);
  // One rank alone cannot.
  rc = crimp_save(MPI_COMM_WORLD, (directory + (rank == size - 1 ? "/none/parent" : "/some")).c_str());
  MPI_Error_class(rc, &error_class);
  CHECK(error_class == MPI_ERR_IO);
  for (const char* nothing : {static_cast<const char*>(nullptr), ""}) {
    MPI_Error_class(crimp_save(MPI_COMM_WORLD, nothing), &error_class);
    CHECK(error_class == MPI_ERR_IO);
    MPI_Error_class(crimp_load(MPI_COMM_WORLD, nothing, nullptr), &error_class);
    CHECK(error_class == MPI_ERR_NO_SUCH_FILE);
  }
  // Nothing of this rank's is left of what the others could not.
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(std::filesystem::is_empty(directory + "/some"));
  MPI_Barrier(MPI_COMM_WORLD);
  rc = crimp_load(MPI_COMM_WORLD, (directory + "/some").c_str(), nullptr);
  MPI_Error_class(rc, &error_class);
  CHECK(error_class == MPI_ERR_NO_SUCH_FILE);
  CHECK(crimp_save(MPI_COMM_WORLD, (directory + "/some").c_str()) == MPI_SUCCESS);
  CHECK(crimp_load(MPI_COMM_WORLD, (directory + "/some").c_str(), &tensors) == MPI_SUCCESS);
  CHECK(tensors == 3);
  CHECK(crimp_load(MPI_COMM_SELF, (directory + "/some").c_str(), &tensors) == MPI_SUCCESS);
  CHECK(tensors == 0);
  reduce(values);
}

}  // namespace

int main(int argc, char** argv) {
  check::begin();
  const std::string what = argc > 1 ? argv[1] : "";
  load(option(argc, argv, "load"));
  if (what == "train" && argc > 4)
    train(std::atoi(argv[2]), std::atoi(argv[3]), argv[4], std::string(argv[argc - 1]) == "slow");
  else if (what == "owe" && argc > 3) owe(std::atoi(argv[2]), argv[3]);
  else if (what == "drain" && argc > 2) drain(argv[2], std::atof(option(argc, argv, "part").c_str()));
  else if (what == "rollback" && argc > 2) rollback(argv[2]);
  else if (what == "extents" && argc > 2) extents(argv[2]);
  else if (what == "refused" && argc > 2) refused(argv[2]);
  else CHECK(false, "bad arguments");
  save(option(argc, argv, "save"));
  return check::finish();
}
