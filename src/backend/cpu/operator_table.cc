// A table's functions have no context, so that there is one set of them for each instruction set and precision.
#include "backend/cpu/operator_table.h"

#include <new>
#include <string_view>

#include "backend/cpu/cpu_operators.h"
#include "backend/cpu/kernels/table.h"
#include "base/check.h"

namespace kipp::cpu {
namespace {

using KernelsOf = const Kernels& (*)();

template <KernelsOf kKernels, Precision kPrecision>
struct Exported {
  static CpuOperators operators() { return {kKernels(), kPrecision, 1}; }

  static void embedding(const EmbeddingArgs& args) { operators().embedding(args); }
  static void rms_norm(const RmsNormArgs& args) { operators().rms_norm(args); }
  static void kv_write(const KvWriteArgs& args) { operators().kv_write({&args, 1}); }
  static void attention(const AttentionArgs& args) { operators().attention({&args, 1}); }
  static void swiglu(const SwigluArgs& args) { operators().swiglu(args); }
  static void residual_add(const ResidualAddArgs& args) { operators().residual_add(args); }

  static void rope(const RopeArgs& args) {
    CpuOperators ops = operators();
    Dimensions dimensions{};
    dimensions.head_dim = args.head_dim;
    dimensions.rope_theta = args.theta;
    ops.begin_step({args.positions, static_cast<size_t>(args.num_tokens)}, dimensions);
    ops.rope(args);
  }

  static void matmul(const MatmulArgs& args) {
    const MatmulKernel& kernel = kKernels().matmul[static_cast<size_t>(args.type)][static_cast<size_t>(kPrecision)];
    auto packed = AlignedBuffer<std::byte>::create(kernel.packed_bytes(args.num_tokens, args.columns), "activations");
    KIPP_CHECK(packed.has_value());
    kernel.pack({args.x, args.num_tokens, args.columns, packed->data()}, 0, args.num_tokens);
    kernel.multiply({.weight = args.weight,
                     .x = args.x,
                     .packed = packed->data(),
                     .out = args.out,
                     .out_stride = args.out_stride,
                     .num_tokens = args.num_tokens,
                     .columns = args.columns,
                     .row_begin = 0,
                     .row_end = args.rows});
  }
};

template <KernelsOf kKernels, Precision kPrecision>
const OperatorTable& table(const char* name) {
  using Operators = Exported<kKernels, kPrecision>;
  static const OperatorTable kTable = {.backend = name,
                                       .embedding = Operators::embedding,
                                       .rms_norm = Operators::rms_norm,
                                       .matmul = Operators::matmul,
                                       .rope = Operators::rope,
                                       .kv_write = Operators::kv_write,
                                       .attention = Operators::attention,
                                       .swiglu = Operators::swiglu,
                                       .residual_add = Operators::residual_add};
  return kTable;
}

template <KernelsOf kKernels>
const OperatorTable& table(Precision precision, const char* name, const char* name_of_high) {
  return precision == Precision::kDefault ? table<kKernels, Precision::kDefault>(name)
                                          : table<kKernels, Precision::kHigh>(name_of_high);
}

}  // namespace

const OperatorTable& operator_table(const Kernels& kernels, Precision precision) {
#if defined(__x86_64__)
  const std::string_view isa = kernels.isa;
  if (isa == "amx") return table<amx::kernels>(precision, "cpu/amx", "cpu/amx, high precision");
  if (isa == "avx512_vnni") {
    return table<avx512_vnni::kernels>(precision, "cpu/avx512_vnni", "cpu/avx512_vnni, high precision");
  }
  if (isa == "avx512") return table<avx512::kernels>(precision, "cpu/avx512", "cpu/avx512, high precision");
  if (isa == "avx2") return table<avx2::kernels>(precision, "cpu/avx2", "cpu/avx2, high precision");
#else
  static_cast<void>(kernels);
#endif
  return table<baseline::kernels>(precision, "cpu/baseline", "cpu/baseline, high precision");
}

}  // namespace kipp::cpu
