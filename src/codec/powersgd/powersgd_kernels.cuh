// PowerSGD's steps for all tensors of a call. Every block finds its tensor in the table by the number of its first
// block. The order in which floats are added is the host's (WIRE_FORMAT.md, section 4.24), which ranks must share for
// P Q^T and orthonormal columns; a rank's own M Q and M^T P may come from elsewhere (backend/cuda_blas.hpp):
//   M Q     a warp has some rows and all columns of Q at once; lane l is the format's lane l
//   M^T P   a block has 32 columns of M; all its warps read ahead, a warp for each column of P adds row after row
//   P Q^T   a thread has one column of M in several rows
// Each reads values and residual once, neighbours side by side, whatever the rank.
#pragma once
#include "codec/device/block.cuh"
#include "codec/powersgd/powersgd_device.hpp"

namespace crimp::powersgd {

inline constexpr std::uint32_t kCopied = 8192;  // elements of a tensor that travels exactly, for a block

// blockIdx.x is one of the blocks of tensors[result].
template <int step>
__device__ inline std::uint32_t tensor_of(const DeviceTensor* tensors, std::uint32_t count) {
  std::uint32_t low = 0, high = count;
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (tensors[middle].first[step] <= blockIdx.x) low = middle;
    else high = middle;
  }
  return low;
}

// A block's part of a tensor that travels exactly.
__device__ inline void copy_part(float* to, const float* from, std::uint64_t count, std::uint32_t block) {
  const std::uint64_t begin = std::uint64_t{block} * kCopied, end = begin + kCopied < count ? begin + kCopied : count;
  for (std::uint64_t i = begin + threadIdx.x; i < end; i += blockDim.x) to[i] = from[i];
}

struct DotShared {
  double lanes[device::kThreads];
};
static_assert(kDotLanes == device::kThreads && device::kWarps == 16);

// A block per tensor: a thread is a lane of the dot products and has its elements.
template <bool of_q>
__global__ void __launch_bounds__(device::kThreads) orthonormalise_columns(const DeviceTensor* tensors) {
  auto& shared = device::shared_memory<DotShared>();
  const Tensor t = tensors[blockIdx.x].tensor;
  const Matrix& m = t.matrix;
  if (m.rank == 0) return;
  float* const columns = device::global(of_q ? t.before : t.left);
  const float* const memory = device::global(t.memory);
  const std::uint64_t length = of_q ? m.cols : m.rows;
  const auto each = [&](auto&& use) {
    for (std::uint64_t e = threadIdx.x; e < length; e += device::kThreads) use(e);
  };
  if constexpr (of_q)
    for (std::uint32_t k = 0; k < m.rank; ++k)
      each([&](std::uint64_t e) { columns[k * length + e] = memory ? memory[m.count + k * length + e] : 0.0f; });
  const auto dot = [&](const float* a, const float* b) {
    double sum = 0;
#pragma unroll 4
    for (std::uint64_t e = threadIdx.x; e < length; e += device::kThreads)
      sum = sum + static_cast<double>(a[e]) * static_cast<double>(b[e]);
    shared.lanes[threadIdx.x] = sum;
    __syncthreads();
    double part[8];  // every warp adds all lanes
#pragma unroll
    for (int w = 0; w < 8; ++w)
      part[w] =
          shared.lanes[device::kWarp * w + device::lane()] + shared.lanes[device::kWarp * (w + 8) + device::lane()];
#pragma unroll
    for (int w = 0; w < 4; ++w) part[w] = part[w] + part[w + 4];
    sum = (part[0] + part[2]) + (part[1] + part[3]);
#pragma unroll
    for (std::uint32_t half = device::kWarp / 2; half > 0; half /= 2)
      sum = sum + __shfl_down_sync(device::kAllLanes, sum, half);
    sum = __shfl_sync(device::kAllLanes, sum, 0);
    __syncthreads();
    return sum;
  };
  orthonormalise_with(columns, length, m.rank, of_q ? &t.fresh : nullptr, dot, each);
}

inline constexpr std::uint32_t kRowThreads = 128;
template <int columns>
inline constexpr std::uint32_t kRowsOfWarp = columns <= 2 ? 2 : 4;
template <int columns>
inline constexpr std::uint32_t kRowsOfBlock = kRowThreads / device::kWarp* kRowsOfWarp<columns>;

// left = M Q. columns: the rank, or the next power of two.
template <int columns>
__global__ void __launch_bounds__(kRowThreads) multiply_rows(const DeviceTensor* tensors, std::uint32_t count) {
  constexpr std::uint32_t n_rows = kRowsOfWarp<columns>;
  const DeviceTensor& entry = tensors[tensor_of<static_cast<int>(Step::project)>(tensors, count)];
  const std::uint32_t block = blockIdx.x - entry.first[static_cast<int>(Step::project)];
  const Tensor t = entry.tensor;
  const Matrix& m = t.matrix;
  if (m.rank == 0) {
    copy_part(t.left, t.values, m.count, block);
    return;
  }
  const std::uint64_t row = std::uint64_t{block} * kRowsOfBlock<columns> + device::warp() * n_rows, at = row * m.cols;
  const float *values = t.values + at, *memory = t.memory ? t.memory + at : nullptr;
  const auto cols = static_cast<std::uint32_t>(m.cols);
  std::uint32_t length[n_rows];  // of the rows; the last one may be short, and behind it there are none
  float sum[n_rows][columns];
#pragma unroll
  for (std::uint32_t r = 0; r < n_rows; ++r) {
    const std::uint64_t begin = at + std::uint64_t{r} * cols;
    length[r] = begin >= m.count ? 0 : m.count - begin < cols ? static_cast<std::uint32_t>(m.count - begin) : cols;
#pragma unroll
    for (int k = 0; k < columns; ++k) sum[r][k] = 0.0f;
  }
#pragma unroll 2
  for (std::uint32_t j = device::lane(); j < length[0]; j += device::kWarp) {
    float x[n_rows];
#pragma unroll
    for (std::uint32_t r = 0; r < n_rows; ++r) {
      x[r] = 0.0f;
      if (j < length[r])
        x[r] = memory ? values[std::size_t{r} * cols + j] + memory[std::size_t{r} * cols + j]
                      : values[std::size_t{r} * cols + j];
    }
#pragma unroll
    for (int k = 0; k < columns; ++k) {
      const float q = k < static_cast<int>(m.rank) ? t.before[std::size_t(k) * cols + j] : 0.0f;
#pragma unroll
      for (std::uint32_t r = 0; r < n_rows; ++r)
        sum[r][k] = sum[r][k] + x[r] * q;  // behind a row's end +-0, which changes no sum: none is -0
    }
  }
#pragma unroll
  for (std::uint32_t r = 0; r < n_rows; ++r)
#pragma unroll
    for (int k = 0; k < columns; ++k) {
#pragma unroll
      for (std::uint32_t half = device::kWarp / 2; half > 0; half /= 2)
        sum[r][k] = sum[r][k] + __shfl_down_sync(device::kAllLanes, sum[r][k], half);
      if (device::lane() == 0 && row + r < m.rows && k < static_cast<int>(m.rank))
        t.left[static_cast<std::uint64_t>(k) * m.rows + row + r] = sum[r][k];
    }
}

inline constexpr std::uint32_t kTileRows = 128, kTileEach = kTileRows / device::kWarps;
struct TileShared {
  float x[kTileRows][device::kWarp];
  float p[kMostRank][kTileRows];
};

// right = M^T left: a block has 32 columns of M. While the tile of rows in shared memory is added, the next one is on
// its way.
template <std::uint32_t threads>
__global__ void __launch_bounds__(threads) multiply_columns(const DeviceTensor* tensors, std::uint32_t count) {
  static_assert(threads == device::kThreads && kMostRank <= device::kWarps);
  constexpr std::uint32_t n_factors = kMostRank * kTileRows / threads;
  auto& shared = device::shared_memory<TileShared>();
  const DeviceTensor& entry = tensors[tensor_of<static_cast<int>(Step::project_back)>(tensors, count)];
  const Tensor t = entry.tensor;
  const Matrix& m = t.matrix;
  const std::uint64_t column =
      std::uint64_t{device::kWarp} * (blockIdx.x - entry.first[static_cast<int>(Step::project_back)]) + device::lane();
  const std::uint64_t whole = m.count / m.cols,
                      rows =
                          column >= m.cols ? 0 : whole + (column < m.count - whole * m.cols);  // that have this column
  float x[kTileEach], r[kTileEach], p[n_factors];
  const auto fetch = [&](std::uint64_t first) {
#pragma unroll
    for (std::uint32_t i = 0; i < kTileEach; ++i) {
      const std::uint64_t row = first + device::warp() + device::kWarps * i, at = row * m.cols + column;
      x[i] = row < rows ? t.values[at] : 0.0f;
      r[i] = row < rows && t.memory ? t.memory[at] : 0.0f;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < n_factors; ++i) {
      const std::uint32_t k = (threadIdx.x + i * threads) / kTileRows;
      const std::uint64_t row = first + threadIdx.x % kTileRows;
      p[i] = k < m.rank && row < m.rows ? t.left[k * m.rows + row] : 0.0f;
    }
  };
  float sum = 0.0f;
  fetch(0);
  for (std::uint64_t first = 0; first < m.rows; first += kTileRows) {
#pragma unroll
    for (std::uint32_t i = 0; i < kTileEach; ++i)
      shared.x[device::warp() + device::kWarps * i][device::lane()] = t.memory ? x[i] + r[i] : x[i];
#pragma unroll
    for (std::uint32_t i = 0; i < n_factors; ++i)
      shared.p[(threadIdx.x + i * threads) / kTileRows][threadIdx.x % kTileRows] = p[i];
    __syncthreads();
    if (first + kTileRows < m.rows) fetch(first + kTileRows);
    if (device::warp() < m.rank) {
      const std::uint32_t n = rows <= first              ? 0
                              : rows - first < kTileRows ? static_cast<std::uint32_t>(rows - first)
                                                         : kTileRows;
#pragma unroll 8
      for (std::uint32_t i = 0; i < n; ++i) sum = sum + shared.x[i][device::lane()] * shared.p[device::warp()][i];
    }
    __syncthreads();
  }
  if (device::warp() < m.rank && column < m.cols) t.right[device::warp() * m.cols + column] = sum;
}

inline constexpr std::uint32_t kRebuildThreads = 256;
template <int columns>
inline constexpr std::uint32_t kRebuildRows = columns <= 4 ? 8 : 4;

// out = left right^T, the residual and the memory's Q.
template <int columns>
__global__ void __launch_bounds__(kRebuildThreads)
    rebuild_rows(const DeviceTensor* tensors, std::uint32_t count, float share) {
  constexpr std::uint32_t n_rows = kRebuildRows<columns>;
  const DeviceTensor& entry = tensors[tensor_of<static_cast<int>(Step::rebuild)>(tensors, count)];
  const std::uint32_t block = blockIdx.x - entry.first[static_cast<int>(Step::rebuild)];
  const Tensor t = entry.tensor;
  const Matrix& m = t.matrix;
  if (m.rank == 0) {
    copy_part(t.out, t.left, m.count, block);
    return;
  }
  const auto tiles = static_cast<std::uint32_t>((m.cols + kRebuildThreads - 1) / kRebuildThreads);
  const std::uint64_t column = std::uint64_t{block % tiles} * kRebuildThreads + threadIdx.x,
                      row = std::uint64_t{block / tiles} * n_rows;
  if (column >= m.cols) return;
  const std::uint64_t whole = m.count / m.cols, rows = whole + (column < m.count - whole * m.cols),
                      at = row * m.cols + column;
  float q[columns], x[n_rows];
#pragma unroll
  for (int k = 0; k < columns; ++k) {
    q[k] = k < static_cast<int>(m.rank) ? t.right[static_cast<std::uint64_t>(k) * m.cols + column] : 0.0f;
    if (t.memory && row == 0 && k < static_cast<int>(m.rank))
      t.memory[m.count + static_cast<std::uint64_t>(k) * m.cols + column] = q[k];
  }
  if (t.memory) {
#pragma unroll
    for (std::uint32_t r = 0; r < n_rows; ++r)
      x[r] = row + r < rows ? t.values[at + r * m.cols] + t.memory[at + r * m.cols] : 0.0f;
  }
#pragma unroll
  for (std::uint32_t r = 0; r < n_rows; ++r) {
    if (row + r >= rows) break;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < columns; ++k)
      if (k < static_cast<int>(m.rank)) sum = sum + t.left[static_cast<std::uint64_t>(k) * m.rows + row + r] * q[k];
    if (t.memory) t.memory[at + r * m.cols] = x[r] - sum * share;
    t.out[at + r * m.cols] = sum;
  }
}

}  // namespace crimp::powersgd
