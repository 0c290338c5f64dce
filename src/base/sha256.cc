// SHA-256; the names of the functions and variables follow FIPS 180-4, sections 4.1.2 and 6.2.2.
#include "base/sha256.h"

#include <algorithm>
#include <bit>

namespace kipp {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_sigma_0(uint32_t x) {
  return std::rotr(x, 2) ^ std::rotr(x, 13) ^ std::rotr(x, 22);
}
uint32_t big_sigma_1(uint32_t x) {
  return std::rotr(x, 6) ^ std::rotr(x, 11) ^ std::rotr(x, 25);
}
uint32_t small_sigma_0(uint32_t x) {
  return std::rotr(x, 7) ^ std::rotr(x, 18) ^ (x >> 3);
}
uint32_t small_sigma_1(uint32_t x) {
  return std::rotr(x, 17) ^ std::rotr(x, 19) ^ (x >> 10);
}
uint32_t choose(uint32_t x, uint32_t y, uint32_t z) {
  return (x & y) ^ (~x & z);
}
uint32_t majority(uint32_t x, uint32_t y, uint32_t z) {
  return (x & y) ^ (x & z) ^ (y & z);
}

uint32_t load_big_endian(const std::byte* bytes) {
  return (std::to_integer<uint32_t>(bytes[0]) << 24) | (std::to_integer<uint32_t>(bytes[1]) << 16) |
         (std::to_integer<uint32_t>(bytes[2]) << 8) | std::to_integer<uint32_t>(bytes[3]);
}

}  // namespace

void Sha256::compress(const std::byte* block) {
  std::array<uint32_t, 64> w;
  for (size_t t = 0; t < 16; ++t) {
    w[t] = load_big_endian(block + 4 * t);
  }
  for (size_t t = 16; t < 64; ++t) {
    w[t] = small_sigma_1(w[t - 2]) + w[t - 7] + small_sigma_0(w[t - 15]) + w[t - 16];
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t t = 0; t < 64; ++t) {
    const uint32_t t1 = h + big_sigma_1(e) + choose(e, f, g) + kRoundConstants[t] + w[t];
    const uint32_t t2 = big_sigma_0(a) + majority(a, b, c);
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state_.size(); ++i) {
    state_[i] += added[i];
  }
}

void Sha256::update(std::span<const std::byte> data) {
  total_bytes_ += data.size();
  if (num_pending_ > 0) {
    const size_t taken = std::min(data.size(), kBlockBytes - num_pending_);
    std::copy_n(data.begin(), taken, pending_.begin() + static_cast<ptrdiff_t>(num_pending_));
    num_pending_ += taken;
    data = data.subspan(taken);
    if (num_pending_ < kBlockBytes) {
      return;
    }
    compress(pending_.data());
    num_pending_ = 0;
  }
  while (data.size() >= kBlockBytes) {
    compress(data.data());
    data = data.subspan(kBlockBytes);
  }
  std::copy(data.begin(), data.end(), pending_.begin());
  num_pending_ = data.size();
}

Sha256::Digest Sha256::finish() {
  const uint64_t total_bits = total_bytes_ * 8;
  // A one bit, zeros up to 56 bytes of the last block, and the length in bits, big-endian.
  std::array<std::byte, kBlockBytes + 8> padding{};
  padding[0] = std::byte{0x80};
  const size_t num_zeroed = (num_pending_ < 56 ? 56 : 56 + kBlockBytes) - num_pending_;
  for (size_t i = 0; i < 8; ++i) {
    padding[num_zeroed + i] = static_cast<std::byte>(total_bits >> (56 - 8 * i));
  }
  update(std::span(padding).first(num_zeroed + 8));
  Digest digest;
  for (size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  }
  return digest;
}

std::string sha256_hex(std::span<const std::byte> data) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  Sha256 hash;
  hash.update(data);
  std::string text;
  text.reserve(64);
  for (const uint8_t byte : hash.finish()) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace kipp
