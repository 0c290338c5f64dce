// The memory that a dispatch may touch, and the checks of every access: bounds, writes to what is read-only, what was
// never written, poison, races. Kernels are compiled so that each of their accesses comes here first (access_hooks.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "metal/emulation/shadow.h"

namespace kipp::metal_emulation {

enum class Space : uint8_t { kDevice, kThreadgroup };

// Shadow of a region: zero at first and, however large the region is, only there where it is used.
class ShadowMemory {
 public:
  explicit ShadowMemory(size_t bytes);
  ~ShadowMemory();
  ShadowMemory(const ShadowMemory&) = delete;
  ShadowMemory& operator=(const ShadowMemory&) = delete;
  Granule* granules() const { return granules_; }

 private:
  Granule* granules_;
  size_t mapped_bytes_;
};

struct Region {
  uintptr_t begin, end;
  std::string name;
  Space space = Space::kDevice;
  bool is_writable = false;
  bool has_poison = false;
  uint32_t poison = 0;
  std::shared_ptr<ShadowMemory> shadow = nullptr;  // of what is written
};

// An access as the detectors see it.
struct Access {
  uintptr_t address;
  size_t bytes;
  bool is_write;
};

class Memory {
 public:
  // Regions may overlap: one buffer bound twice is one region.
  void add(Region region);
  // Program constants and what the emulator itself gives to lanes: may be read.
  void allow_reading(uintptr_t begin, uintptr_t end);
  // After the last add.
  void finish();

  // False if something is wrong with it, which finding() then says. stamps: of each space.
  bool check(const Access& access, const Stamp (&stamps)[2]);
  const std::string& finding() const { return finding_; }

 private:
  Region* find(uintptr_t address);
  bool fail(std::string finding) {
    finding_ = std::move(finding);
    return false;
  }
  std::string describe_outside(const Access& access) const;
  bool check_contents(const Region& region, const Access& access, Stamp now);

  std::vector<Region> regions_;  // ascending, disjoint
  std::vector<Region> readable_;
  Region* latest_ = nullptr;
  std::string finding_;
};

}  // namespace kipp::metal_emulation
