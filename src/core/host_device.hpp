// Marks functions of single elements that host and device code share.
#pragma once
#ifdef __CUDACC__
#define CRIMP_HD __host__ __device__ inline
#else
#define CRIMP_HD inline
#endif
