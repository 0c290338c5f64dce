// See memory.h.
#include "metal/emulation/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace kipp::metal_emulation {

ShadowMemory::ShadowMemory(size_t bytes) : mapped_bytes_((bytes / kGranuleBytes + 2) * sizeof(Granule)) {
  void* mapped =
      mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  granules_ = static_cast<Granule*>(mapped);
}

ShadowMemory::~ShadowMemory() {
  munmap(granules_, mapped_bytes_);
}

void Memory::add(Region region) {
  regions_.push_back(std::move(region));
}

void Memory::allow_reading(uintptr_t begin, uintptr_t end) {
  readable_.push_back({.begin = begin, .end = end, .name = "constants"});
}

void Memory::finish() {
  std::ranges::sort(regions_, {}, &Region::begin);
  std::vector<Region> merged;
  for (Region& region : regions_) {
    if (merged.empty() || region.begin >= merged.back().end) {
      merged.push_back(std::move(region));
      continue;
    }
    Region& last = merged.back();
    last.end = std::max(last.end, region.end);
    last.name += " and " + region.name;
    last.is_writable |= region.is_writable;
    if (region.has_poison) last.poison = region.poison;
    last.has_poison |= region.has_poison;
  }
  regions_ = std::move(merged);
  for (Region& region : regions_) {
    if (region.is_writable) region.shadow = std::make_shared<ShadowMemory>(region.end - region.begin);
  }
}

Region* Memory::find(uintptr_t address) {
  if (latest_ != nullptr && address >= latest_->begin && address < latest_->end) return latest_;
  for (Region& region : regions_) {
    if (address >= region.begin && address < region.end) return latest_ = &region;
  }
  return nullptr;
}

std::string Memory::describe_outside(const Access& access) const {
  const Region* nearest = nullptr;
  uintptr_t least = ~uintptr_t{0};
  for (const Region& region : regions_) {
    const uintptr_t distance =
        access.address >= region.end ? access.address - region.end : region.begin - access.address;
    if (distance < least) {
      least = distance;
      nearest = &region;
    }
  }
  const char* verb = access.is_write ? "writes" : "reads";
  if (nearest == nullptr) return fmt::format("{} {} bytes where no memory is bound", verb, access.bytes);
  return fmt::format("{} {} bytes outside of every buffer: {} bytes {} {}", verb, access.bytes, least,
                     access.address >= nearest->end ? "behind the end of" : "before", nearest->name);
}

bool Memory::check(const Access& access, const Stamp (&stamps)[2]) {
  const Region* region = find(access.address);
  if (region == nullptr) {
    const auto holds = [&](const Region& r) {
      return access.address >= r.begin && access.address + access.bytes <= r.end;
    };
    if (!access.is_write && std::ranges::any_of(readable_, holds)) return true;
    return fail(describe_outside(access));
  }
  const size_t offset = access.address - region->begin;
  if (access.address + access.bytes > region->end) {
    return fail(fmt::format("{} {} bytes at byte {} of {}, which has {}", access.is_write ? "writes" : "reads",
                            access.bytes, offset, region->name, region->end - region->begin));
  }
  if (access.is_write && !region->is_writable) {
    return fail(fmt::format("writes to {} at byte {}, which is only to be read", region->name, offset));
  }
  if (region->shadow == nullptr && !region->has_poison) return true;
  return check_contents(*region, access, stamps[static_cast<size_t>(region->space)]);
}

bool Memory::check_contents(const Region& region, const Access& access, Stamp now) {
  const size_t offset = access.address - region.begin;
  const bool shared = region.space == Space::kDevice;
  if (region.has_poison && !access.is_write) {
    for (size_t i = 0; i < access.bytes; i += 4) {
      uint32_t word = region.poison;
      std::memcpy(&word, reinterpret_cast<const void*>(access.address + i), std::min<size_t>(4, access.bytes - i));
      const bool is_whole = access.bytes >= 2 && offset % std::min<size_t>(access.bytes, 4) == 0;
      if (is_whole && word == region.poison)
        return fail(fmt::format("reads poison at byte {} of {}", offset + i, region.name));
    }
  }
  if (region.shadow == nullptr) return true;
  Granule* granules = region.shadow->granules() + offset / kGranuleBytes;
  const size_t count = (offset % kGranuleBytes + access.bytes + kGranuleBytes - 1) / kGranuleBytes;
  for (size_t i = 0; i < count; ++i) {
    const Conflict conflict =
        access.is_write ? note_write(granules[i], now, shared) : note_read(granules[i], now, shared);
    if (conflict == Conflict::kUnwritten) {
      return fail(fmt::format("reads byte {} of {}, which this threadgroup has not written", offset, region.name));
    }
    if (conflict == Conflict::kRace) {
      return fail(fmt::format("race: {} byte {} of {}, which another thread {} with no barrier between",
                              access.is_write ? "writes" : "reads", offset, region.name,
                              access.is_write ? "read or wrote" : "wrote"));
    }
  }
  return true;
}

}  // namespace kipp::metal_emulation
