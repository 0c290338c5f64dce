// Philox4x32-10, the counter-based generator of Salmon et al. 2011 ("Parallel random numbers: as easy as 1, 2, 3").
// A draw is a pure function of seed, choice and absolute position: neighbours, batches and devices cannot change it.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace kipp {

struct PhiloxCounter {
  uint32_t word[4];
};
struct PhiloxKey {
  uint32_t word[2];
};

KIPP_HOST_DEVICE inline PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key) {
  for (int32_t round = 0; round < 10; ++round) {
    const uint64_t product_0 = 0xD2511F53ULL * counter.word[0];
    const uint64_t product_1 = 0xCD9E8D57ULL * counter.word[2];
    counter = PhiloxCounter{
        {static_cast<uint32_t>(product_1 >> 32) ^ counter.word[1] ^ key.word[0], static_cast<uint32_t>(product_1),
         static_cast<uint32_t>(product_0 >> 32) ^ counter.word[3] ^ key.word[1], static_cast<uint32_t>(product_0)}};
    key.word[0] += 0x9E3779B9U;
    key.word[1] += 0xBB67AE85U;
  }
  return counter;
}

// 64 uniform bits for the token at `position`. Counter words 2 and 3 are zero: room for other purposes.
KIPP_HOST_DEVICE inline uint64_t token_draw(uint64_t seed, int32_t choice, int32_t position) {
  const PhiloxCounter counter{{static_cast<uint32_t>(position), static_cast<uint32_t>(choice), 0U, 0U}};
  const PhiloxKey key{{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}};
  const PhiloxCounter random = philox4x32_10(counter, key);
  return (static_cast<uint64_t>(random.word[1]) << 32) | random.word[0];
}

}  // namespace kipp
