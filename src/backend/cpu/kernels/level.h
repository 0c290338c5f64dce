// Names the namespace of the instruction set that a kernel file is being compiled for, and declares what table.cc
// gathers from the others.
#pragma once

#include "backend/cpu/kernels.h"

#ifndef KIPP_CPU_LEVEL
#define KIPP_CPU_LEVEL baseline  // for editors and lints; CMakeLists.txt sets it
#endif

namespace kipp::cpu::KIPP_CPU_LEVEL {

void embedding(const EmbeddingArgs& args);
void rms_norm(const RmsNormArgs& args);
void rotate(const RopeArgs& args, const float* cosines, const float* sines);
void kv_write(const KvWriteArgs& args);
void attend(const AttendArgs& args, int32_t segment, const UpcomingKeys& next, float* partial);
#if defined(__AMX_BF16__)
void attend_amx(const AttendArgs& args, int32_t segment, const UpcomingKeys& next, float* partial);
#endif
void merge(const AttendArgs& args, const float* partial, float* total);
void finish(const AttendArgs& args, const float* total);
void swiglu(const SwigluArgs& args);
void residual_add(const ResidualAddArgs& args);
int64_t probe(const ProbeArgs& args);

extern const MatmulKernel kMatmulBf16Fp32;  // widened weights, FP32 activations
#if defined(__AMX_BF16__)
extern const MatmulKernel kMatmulBf16Amx;  // tiles, activations as a sum of two BF16
#endif
// Quantised weights, activations of 16 or 24 bits. All give the same results.
#if defined(__AMX_BF16__)
extern const MatmulKernel kMatmulQ8Amx16;  // tiles; for few tokens by vpdpbusd
extern const MatmulKernel kMatmulQ8Amx24;
extern const MatmulKernel kMatmulAffine4Amx16;
extern const MatmulKernel kMatmulAffine4Amx24;
#endif
#if defined(__AVX512VNNI__)
extern const MatmulKernel kMatmulQ8Vnni16;  // by vpdpbusd
extern const MatmulKernel kMatmulQ8Vnni24;
extern const MatmulKernel kMatmulAffine4Vnni16;
extern const MatmulKernel kMatmulAffine4Vnni24;
#elif defined(__AVX2__)
extern const MatmulKernel kMatmulQ8Madd16;  // by vpmaddwd
extern const MatmulKernel kMatmulQ8Madd24;
extern const MatmulKernel kMatmulAffine4Madd16;
extern const MatmulKernel kMatmulAffine4Madd24;
#else
extern const MatmulKernel kMatmulQ8Int16;  // by what the compiler makes of loops
extern const MatmulKernel kMatmulQ8Int24;
extern const MatmulKernel kMatmulAffine4Int16;
extern const MatmulKernel kMatmulAffine4Int24;
#endif

}  // namespace kipp::cpu::KIPP_CPU_LEVEL
