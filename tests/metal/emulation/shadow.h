// What the detectors remember of memory that kernels write: for every four bytes who wrote and who read them last, and
// between which barriers. Two accesses of which one is a write must be of one thread or have a barrier between them
// that orders them: of the threadgroup, or of the simdgroup where both threads belong to it. Threadgroups of one
// dispatch are never ordered.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kipp::metal_emulation {

// Who accesses memory and when: threadgroup (24 bits, from 1), the threadgroup's barriers so far (14), the simdgroup's
// own (14), thread (12).
struct Stamp {
  uint64_t bits = 0;

  static constexpr uint32_t kMaxBarriers = (1U << 14) - 1;
  static constexpr uint32_t kMaxThreadgroups = (1U << 24) - 2;
  static Stamp of(uint32_t threadgroup, uint32_t barriers, uint32_t simd_barriers, uint32_t thread) {
    return {uint64_t{threadgroup + 1} << 40 | uint64_t{barriers} << 26 | uint64_t{simd_barriers} << 12 | thread};
  }
  uint32_t threadgroup() const { return static_cast<uint32_t>(bits >> 40); }
  uint32_t barriers() const { return static_cast<uint32_t>(bits >> 26) & kMaxBarriers; }
  uint32_t simd_barriers() const { return static_cast<uint32_t>(bits >> 12) & kMaxBarriers; }
  uint32_t thread() const { return static_cast<uint32_t>(bits) & 0xFFFU; }
};

// Who read, where that were several: all lanes of a simdgroup, threads of several, several threadgroups.
inline constexpr uint32_t kOneSimdgroup = 0x800;
inline constexpr uint32_t kManyThreads = 0xFFF;
inline constexpr uint64_t kManyThreadgroups = ~uint64_t{0};

struct Granule {
  Stamp writer, reader;
};
// Threads that write the halves of one word are taken to race: Metal allows it, but no kernel does.
inline constexpr size_t kGranuleBytes = 4;

enum class Conflict : uint8_t { kNone, kUnwritten, kRace };

// shared: whether other threadgroups see the memory (device), or none but the one at work (threadgroup memory, where
// what this threadgroup did not write is not defined).
Conflict note_first_read(Granule& granule, Stamp now, bool shared);
Conflict note_first_write(Granule& granule, Stamp now, bool shared);

// A thread that comes again between the same barriers learns nothing new.
inline Conflict note_read(Granule& granule, Stamp now, bool shared) {
  return granule.reader.bits == now.bits ? Conflict::kNone : note_first_read(granule, now, shared);
}
inline Conflict note_write(Granule& granule, Stamp now, bool shared) {
  const bool is_known =
      granule.writer.bits == now.bits && (granule.reader.bits == 0 || granule.reader.bits == now.bits);
  return is_known ? Conflict::kNone : note_first_write(granule, now, shared);
}

}  // namespace kipp::metal_emulation
