#!/usr/bin/env bash
# Compiles the CUDA backend for every generation of GPUs that it knows, without a warning; runs nothing. Another choice of
# architectures: CUDA_GENERIC_ARCH_FLAGS, with nvcc's own flags ("-gencode=arch=compute_100f,code=sm_100f").
set -euo pipefail
cd "$(dirname "$0")/.."

folder=build/cuda-all
cmake --preset cuda -B "$folder" -DKIPP_BUILD_TESTS=OFF -DCUDA_GENERIC_ARCH_FLAGS="${CUDA_GENERIC_ARCH_FLAGS:-}" \
  -DCMAKE_CUDA_ARCHITECTURES="80-real;86-real;89-real;90a-real;100-real;120-real"
# From scratch: what an earlier build compiled would not show its warnings again.
cmake --build "$folder" --clean-first --target kipp_backend_cuda -j "${JOBS:-$(nproc)}" 2>&1 | tee "$folder/build.log"
# nvcc's driver has warnings of its own, which no flag turns into errors.
if grep -i "warning" "$folder/build.log" >&2; then
  echo "cuda_all.sh: the compiler warned" >&2
  exit 1
fi
