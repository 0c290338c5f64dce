// The instruction sets that this binary has kernels for, one namespace each.
#pragma once

#include "backend/cpu/kernels.h"

namespace kipp::cpu {

namespace baseline {
const Kernels& kernels();
}
#if defined(__x86_64__)
namespace avx2 {
const Kernels& kernels();
}
namespace avx512 {
const Kernels& kernels();
}
namespace avx512_vnni {
const Kernels& kernels();
}
namespace amx {
const Kernels& kernels();
}
#endif

}  // namespace kipp::cpu
