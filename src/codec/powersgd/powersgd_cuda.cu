#include "codec/powersgd/powersgd_kernels.cuh"

namespace crimp::powersgd {
namespace {

// fn(integral constant): the number of columns that kernels are made for.
template <class Fn>
auto by_rank(std::uint32_t rank, Fn&& fn) {
  return rank <= 1   ? fn(std::integral_constant<int, 1>())
         : rank == 2 ? fn(std::integral_constant<int, 2>())
         : rank <= 4 ? fn(std::integral_constant<int, 4>())
                     : fn(std::integral_constant<int, 8>());
}

}  // namespace

DeviceTensors device_tensors(std::span<const Tensor> tensors, DeviceTensor* to, std::span<const Elsewhere> elsewhere) {
  DeviceTensors all{nullptr, static_cast<std::uint32_t>(tensors.size()), 0, {}};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    const Matrix& m = t.matrix;
    DeviceTensor& entry = *to++ = {t, {all.blocks[0], all.blocks[1], all.blocks[2]}};
    const std::uint64_t copies = div_up(m.count, kCopied);
    const auto rows_at_once = by_rank(m.rank, [](auto n) {
      return std::pair<std::uint64_t, std::uint64_t>{kRowsOfBlock<n>, kRebuildRows<n>};
    });
    const std::uint64_t blocks[kSteps] = {
        m.rank ? div_up(m.rows, rows_at_once.first) : copies, m.rank ? div_up(m.cols, device::kWarp) : 0,
        m.rank ? div_up(m.cols, kRebuildThreads) * div_up(m.rows, rows_at_once.second) : copies};
    for (int step = 0; step < kSteps; ++step)
      all.blocks[step] = entry.first[step] + (!elsewhere.empty() && elsewhere[i][static_cast<std::size_t>(step)]
                                                  ? 0
                                                  : static_cast<std::uint32_t>(blocks[step]));
    if (m.rank) all.rank = m.rank;
  }
  return all;
}

int load_steps(std::uint32_t rank) {
  for (const std::uint32_t of : {rank, 0u})
    for (const Step step : {Step::project, Step::project_back, Step::rebuild})
      if (const int e = enqueue_step(step, {nullptr, 1, of, {1, 1, 1}}, 1.0f, device::only_load())) return e;
  return 0;
}

int enqueue_product(Step step, const DeviceTensors& all, Stream s) {
  const std::uint32_t blocks = all.blocks[static_cast<int>(step)];
  constexpr auto columns_all = &multiply_columns<device::kThreads>;
  if (step == Step::project_back)
    return device::launch<columns_all>(blocks, device::kThreads, sizeof(TileShared), s, all.tensors, all.count);
  return by_rank(all.rank, [&](auto n) {
    constexpr auto rows_all = &multiply_rows<n>;
    return device::launch<rows_all>(blocks, kRowThreads, 0, s, all.tensors, all.count);
  });
}

int enqueue_step(Step step, const DeviceTensors& all, float share, Stream s) {
  const std::uint32_t blocks = all.blocks[static_cast<int>(step)];
  constexpr auto of_q = &orthonormalise_columns<true>;
  constexpr auto of_p = &orthonormalise_columns<false>;
  const std::uint32_t factored = all.rank ? all.count : 0;
  switch (step) {
    case Step::project:
      if (const int e = device::launch<of_q>(factored, device::kThreads, sizeof(DotShared), s, all.tensors)) return e;
      return enqueue_product(step, all, s);
    case Step::project_back:
      if (const int e = device::launch<of_p>(factored, device::kThreads, sizeof(DotShared), s, all.tensors)) return e;
      return enqueue_product(step, all, s);
    case Step::rebuild:
      return by_rank(all.rank, [&](auto n) {
        constexpr auto rows_all = &rebuild_rows<n>;
        return device::launch<rows_all>(blocks, kRebuildThreads, 0, s, all.tensors, all.count, share);
      });
  }
  return 0;
}

}  // namespace crimp::powersgd
