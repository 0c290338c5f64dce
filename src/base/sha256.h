// SHA-256 (FIPS 180-4) for hashes of a few megabytes: artifact headers and prefix keys. Not for secrets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kipp {

class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;

  void update(std::span<const std::byte> data);
  Digest finish();  // the object must not be used afterwards

 private:
  static constexpr size_t kBlockBytes = 64;

  void compress(const std::byte* block);

  // The first 32 bits of the fractional parts of the square roots of the first eight primes.
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, kBlockBytes> pending_{};
  size_t num_pending_ = 0;
  uint64_t total_bytes_ = 0;
};

// The digest of `data` as 64 lower-case hexadecimal digits.
std::string sha256_hex(std::span<const std::byte> data);

}  // namespace kipp
