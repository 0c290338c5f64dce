// A seed from the operating system, for whoever names none.
#pragma once

#include <cstdint>

namespace kipp {

uint64_t draw_seed();

}  // namespace kipp
