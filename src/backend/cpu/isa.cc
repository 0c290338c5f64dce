// Detection by CPUID and, for AMX, by asking the system for the tile registers.
#include "backend/cpu/isa.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "backend/cpu/kernels/table.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace kipp::cpu {
namespace {

struct Isa {
  std::string_view name;
  bool (*is_supported)();
  const Kernels& (*kernels)();
};

bool always() {
  return true;
}

#if defined(__x86_64__)

bool has_avx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}

bool has_avx512_vnni() {
  return has_avx512() && __builtin_cpu_supports("avx512vnni") != 0;
}

// Linux hands out the tile registers only to processes that ask for them; threads made later may use them too.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool has_amx() {
  constexpr unsigned kAmxBf16 = 1U << 22;
  constexpr unsigned kAmxTile = 1U << 24;
  constexpr unsigned kAmxInt8 = 1U << 25;
  constexpr unsigned kAll = kAmxBf16 | kAmxTile | kAmxInt8;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (!has_avx512_vnni() || __builtin_cpu_supports("avx512bf16") == 0 ||
      __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kAll) != kAll) {
    return false;
  }
  static const bool kAllowed = may_use_tiles();
  return kAllowed;
}

#endif

// The plainest first.
constexpr Isa kIsas[] = {
    {"baseline", always, baseline::kernels},
#if defined(__x86_64__)
    {"avx2", has_avx2, avx2::kernels},
    {"avx512", has_avx512, avx512::kernels},
    {"avx512_vnni", has_avx512_vnni, avx512_vnni::kernels},
    {"amx", has_amx, amx::kernels},
#endif
};

const Isa& best() {
  const Isa* chosen = &kIsas[0];
  for (const Isa& isa : kIsas) {
    if (isa.is_supported()) {
      chosen = &isa;
    }
  }
  return *chosen;
}

}  // namespace

std::vector<std::string_view> supported_isas() {
  std::vector<std::string_view> names;
  for (const Isa& isa : kIsas) {
    if (isa.is_supported()) {
      names.push_back(isa.name);
    }
  }
  return names;
}

Result<const Kernels*> choose_kernels(std::string_view name) {
  if (name.empty()) {
    return &best().kernels();
  }
  const auto* found =
      std::find_if(std::begin(kIsas), std::end(kIsas), [&](const Isa& isa) { return isa.name == name; });
  if (found != std::end(kIsas) && found->is_supported()) {
    return &found->kernels();
  }
  const bool known = found != std::end(kIsas);
  return make_error(
      known ? ErrorCode::kUnsupported : ErrorCode::kNotFound,
      fmt::format("instruction set \"{}\": {}; this machine runs {}", name,
                  known ? "this machine lacks it" : "there is none of that name", fmt::join(supported_isas(), ", ")));
}

}  // namespace kipp::cpu
