// Marks functions that host and CUDA code share.
#pragma once

#if defined(__CUDACC__)
#define KIPP_HOST_DEVICE __host__ __device__
#else
#define KIPP_HOST_DEVICE
#endif
