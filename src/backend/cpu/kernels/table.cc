// The kernels that one instruction set runs. Both precisions are one kernel where weights are BF16.
#include "backend/cpu/kernels/table.h"

#include "backend/cpu/kernels/level.h"

#define KIPP_STRING_OF(name) #name
#define KIPP_NAME_OF(name) KIPP_STRING_OF(name)

namespace kipp::cpu::KIPP_CPU_LEVEL {

const Kernels& kernels() {
  // In the order of WeightType; default precision first.
  static const Kernels kKernels = {
      .isa = KIPP_NAME_OF(KIPP_CPU_LEVEL),
      .matmul =
          {
#if defined(__AMX_BF16__)
              {kMatmulBf16Amx, kMatmulBf16Amx},
#else
              {kMatmulBf16Fp32, kMatmulBf16Fp32},
#endif
#if defined(__AMX_BF16__)
              {kMatmulQ8Amx16, kMatmulQ8Amx24},
              {kMatmulAffine4Amx16, kMatmulAffine4Amx24},
#elif defined(__AVX512VNNI__)
              {kMatmulQ8Vnni16, kMatmulQ8Vnni24},
              {kMatmulAffine4Vnni16, kMatmulAffine4Vnni24},
#elif defined(__AVX2__)
              {kMatmulQ8Madd16, kMatmulQ8Madd24},
              {kMatmulAffine4Madd16, kMatmulAffine4Madd24},
#else
              {kMatmulQ8Int16, kMatmulQ8Int24},
              {kMatmulAffine4Int16, kMatmulAffine4Int24},
#endif
          },
      .embedding = embedding,
      .rms_norm = rms_norm,
      .rotate = rotate,
      .kv_write = kv_write,
#if defined(__AMX_BF16__)
      .attend = attend_amx,
#else
      .attend = attend,
#endif
      .merge = merge,
      .finish = finish,
      .swiglu = swiglu,
      .residual_add = residual_add,
      .probe = probe,
  };
  return kKernels;
}

}  // namespace kipp::cpu::KIPP_CPU_LEVEL
