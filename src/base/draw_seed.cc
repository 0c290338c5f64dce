// See draw_seed.h. Two draws of 32 bits each.
#include "base/draw_seed.h"

#include <random>

namespace kipp {

uint64_t draw_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32U) | device();
}

}  // namespace kipp
