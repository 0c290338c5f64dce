// See shadow.h.
// Fewer races are found where more than two threads read one place: of several readers only what they have in common is
// remembered.
#include "metal/emulation/shadow.h"

namespace kipp::metal_emulation {
namespace {

constexpr uint32_t kLanes = 32;

uint32_t simdgroup_of(Stamp stamp) {
  return stamp.thread() / kLanes;
}

// Whether whoever `before` stands for, one thread or all of a simdgroup, is of now's simdgroup.
bool is_of_simdgroup(Stamp before, Stamp now) {
  const uint32_t thread = before.thread();
  return thread >= kOneSimdgroup ? thread == (kOneSimdgroup | simdgroup_of(now))
                                 : simdgroup_of(before) == simdgroup_of(now);
}

// Whether nothing orders `before` and `now`, one of which writes.
bool races(Stamp before, Stamp now, bool shared) {
  if (before.bits == 0) return false;
  if (before.bits == kManyThreadgroups) return true;
  if (before.threadgroup() != now.threadgroup()) return shared;
  if (before.barriers() != now.barriers() || before.thread() == now.thread()) return false;
  return !is_of_simdgroup(before, now) || before.simd_barriers() == now.simd_barriers();
}

// The reader that stands for `before` and `now`.
Stamp merged(Stamp before, Stamp now, bool shared) {
  if (before.bits == 0 || before.bits == kManyThreadgroups) return before.bits == 0 ? now : before;
  if (before.threadgroup() != now.threadgroup()) return shared ? Stamp{kManyThreadgroups} : now;
  if (before.barriers() != now.barriers() || before.thread() == now.thread()) return now;
  const uint32_t readers = is_of_simdgroup(before, now) ? kOneSimdgroup | simdgroup_of(now) : kManyThreads;
  return {(now.bits & ~uint64_t{0xFFF}) | readers};
}

}  // namespace

Conflict note_first_read(Granule& granule, Stamp now, bool shared) {
  if (!shared && granule.writer.threadgroup() != now.threadgroup()) return Conflict::kUnwritten;
  if (races(granule.writer, now, shared)) return Conflict::kRace;
  granule.reader = merged(granule.reader, now, shared);
  return Conflict::kNone;
}

Conflict note_first_write(Granule& granule, Stamp now, bool shared) {
  if (races(granule.writer, now, shared) || races(granule.reader, now, shared)) return Conflict::kRace;
  granule.writer = now;
  return Conflict::kNone;
}

}  // namespace kipp::metal_emulation
