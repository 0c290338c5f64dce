// Kipp's version, as printed by `kipp --version`.
#pragma once

namespace kipp {
inline constexpr const char* kVersion = "0.1.0";
}  // namespace kipp
