// The detectors, in the order in which an access meets them.
#include "metal/emulation/memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace kipp::metal_emulation {
namespace {

constexpr uint32_t kSimdWidth = 32;

const char* verb(bool write) {
  return write ? "writes" : "reads";
}

// Whether a barrier lies between that access and now.
bool ordered(const Cell::Access& then, Space space, const Accessor& now) {
  const auto s = static_cast<size_t>(space);
  if (then.group == 0) return true;
  if (then.group != now.group) return false;
  if (then.thread == now.thread || then.epoch != now.epoch[s]) return true;
  return then.thread / kSimdWidth == now.thread / kSimdWidth && then.simd_epoch != now.simd_epoch[s];
}

bool reads_ordered(const Cell& cell, Space space, const Accessor& now) {
  using Readers = Cell::Readers;
  const auto s = static_cast<size_t>(space);
  const Cell::Access& read = cell.read;
  switch (cell.readers) {
    case Readers::kOne: return ordered(read, space, now);
    case Readers::kOneSimdgroup:
      return read.group == now.group && (read.epoch != now.epoch[s] || (read.thread / kSimdWidth == now.thread / kSimdWidth &&
                                                                        read.simd_epoch != now.simd_epoch[s]));
    case Readers::kOneThreadgroup: return read.group == now.group && read.epoch != now.epoch[s];
    case Readers::kSeveralThreadgroups: return false;
  }
  return false;
}

Cell::Access access_of(Space space, const Accessor& now) {
  const auto s = static_cast<size_t>(space);
  return {.group = now.group, .epoch = now.epoch[s], .simd_epoch = now.simd_epoch[s], .thread = now.thread};
}

void add_reader(Cell& cell, Space space, const Accessor& now) {
  using Readers = Cell::Readers;
  const Cell::Access access = access_of(space, now);
  if (cell.read.group != 0 && cell.read.group != now.group) {
    cell.readers = Readers::kSeveralThreadgroups;
  } else if (cell.readers != Readers::kSeveralThreadgroups) {
    const bool same_epoch = cell.read.group != 0 && cell.read.epoch == access.epoch;
    if (!same_epoch) {
      cell.readers = Readers::kOne;
    } else if (cell.read.thread / kSimdWidth != now.thread / kSimdWidth) {
      cell.readers = Readers::kOneThreadgroup;
    } else if (cell.read.thread != now.thread) {
      cell.readers = std::max(cell.readers, Readers::kOneSimdgroup);
    }
  }
  cell.read = access;
}

}  // namespace

void Memory::begin_dispatch(std::vector<Range> ranges) {
  for (Range& range : ranges) {
    range.tracked = std::any_of(ranges.begin(), ranges.end(), [&](const Range& other) {
      return other.writable && other.begin < range.end && range.begin < other.end;
    });
  }
  ranges_ = std::move(ranges);
  num_device_ = ranges_.size();
  last_ = 0;
  pages_.clear();
  last_page_cells_ = nullptr;
}

void Memory::begin_group(const std::vector<Range>& threadgroup) {
  ranges_.resize(num_device_);
  last_ = 0;
  for (const Range& range : threadgroup) {
    ranges_.push_back(range);
    for (uintptr_t address = range.begin; address < range.end; address += kCellBytes) cell(address) = Cell{};
  }
}

const Range* Memory::find(uintptr_t address, bool write) {
  const auto holds = [&](const Range& range) {
    return address >= range.begin && address < range.end && (range.writable || !write);
  };
  if (last_ < ranges_.size() && holds(ranges_[last_])) return &ranges_[last_];
  for (size_t i = 0; i < ranges_.size(); ++i) {
    if (holds(ranges_[i])) {
      last_ = i;
      return &ranges_[i];
    }
  }
  return nullptr;
}

Cell& Memory::cell(uintptr_t address) {
  const uintptr_t page = address / kPageBytes;
  if (last_page_cells_ == nullptr || page != last_page_) {
    std::unique_ptr<Page>& cells = pages_[page];
    if (!cells) cells = std::make_unique<Page>();
    last_page_ = page;
    last_page_cells_ = cells.get();
  }
  return (*last_page_cells_)[address % kPageBytes / kCellBytes];
}

std::string Memory::outside(uintptr_t address, size_t size, bool write) const {
  const Range* nearest = nullptr;
  uintptr_t distance = 4096;
  for (const Range& range : ranges_) {
    if (address >= range.begin && address < range.end) {
      return fmt::format("{} {} bytes at byte {} of {}, which is only to be read", verb(write), size,
                         address - range.begin, range.name);
    }
    const uintptr_t away = address < range.begin ? range.begin - address : address - range.end;
    if (away < distance) {
      distance = away;
      nearest = &range;
    }
  }
  if (nearest == nullptr) return fmt::format("{} {} bytes outside of everything bound", verb(write), size);
  return fmt::format("{} {} bytes out of bounds, {} bytes {} {} of {} bytes", verb(write), size, distance,
                     address < nearest->begin ? "before" : "behind", nearest->name, nearest->end - nearest->begin);
}

std::string Memory::check_initialised(const Range& range, uintptr_t address, size_t size, bool write) {
  if (unwritten_.empty()) return {};
  for (uintptr_t byte = address; byte < address + size; ++byte) {
    const auto page = unwritten_.find(byte / kPageBytes);
    if (page == unwritten_.end()) continue;
    uint64_t& word = page->second[byte % kPageBytes / 64];
    const uint64_t bit = uint64_t{1} << (byte % 64);
    if (write) {
      word &= ~bit;
    } else if ((word & bit) != 0) {
      return fmt::format("reads byte {} of {}, which nobody wrote", byte - range.begin, range.name);
    }
  }
  return {};
}

std::string Memory::track(const Range& range, uintptr_t address, size_t size, bool write, const Accessor& who) {
  const uintptr_t first = address & ~(kCellBytes - 1);
  for (uintptr_t at = first; at < address + size; at += kCellBytes) {
    Cell& cell = this->cell(at);
    const auto where = [&] { return fmt::format("byte {} of {}", at - range.begin, range.name); };
    if (range.space == Space::kThreadgroup && !write && !cell.initialised) {
      return fmt::format("reads {}, which nobody wrote", where());
    }
    if (!ordered(cell.write, range.space, who)) {
      return fmt::format("{} {}, which thread {} of {} threadgroup wrote, with no barrier between (race)", verb(write),
                         where(), cell.write.thread, cell.write.group == who.group ? "the same" : "another");
    }
    if (!write) {
      add_reader(cell, range.space, who);
      continue;
    }
    if (cell.read.group != 0 && !reads_ordered(cell, range.space, who)) {
      return fmt::format("writes {}, which thread {} of {} threadgroup read, with no barrier between (race)", where(),
                         cell.read.thread, cell.read.group == who.group ? "the same" : "another");
    }
    cell.write = access_of(range.space, who);
    cell.initialised = true;
  }
  return {};
}

std::string Memory::access(uintptr_t address, size_t size, bool write, const Accessor& who) {
  const Range* range = find(address, write);
  if (range == nullptr || address + size > range->end) {
    if (range == nullptr && !write) {
      for (const Range& scope : program_scope_) {
        if (address >= scope.begin && address + size <= scope.end) return {};
      }
    }
    return outside(range == nullptr ? address : std::max(address, range->end), size, write);
  }
  if (range->space == Space::kDevice) {
    std::string problem = check_initialised(*range, address, size, write);
    if (!problem.empty()) return problem;
  }
  return range->tracked ? track(*range, address, size, write, who) : std::string();
}

void Memory::mark_uninitialised(uintptr_t begin, size_t length) {
  for (uintptr_t byte = begin; byte < begin + length;) {
    auto& words = unwritten_[byte / kPageBytes];
    if (byte % kPageBytes == 0 && byte + kPageBytes <= begin + length) {
      words.fill(~uint64_t{0});
      byte += kPageBytes;
    } else {
      words[byte % kPageBytes / 64] |= uint64_t{1} << (byte % 64);
      ++byte;
    }
  }
}

void Memory::mark_initialised(uintptr_t begin, size_t length) {
  for (uintptr_t page = begin / kPageBytes; page * kPageBytes < begin + length && !unwritten_.empty(); ++page) {
    const auto found = unwritten_.find(page);
    if (found == unwritten_.end()) continue;
    bool any = false;
    for (uintptr_t byte = page * kPageBytes; byte < (page + 1) * kPageBytes; ++byte) {
      if (byte >= begin && byte < begin + length) found->second[byte % kPageBytes / 64] &= ~(uint64_t{1} << (byte % 64));
    }
    for (const uint64_t word : found->second) any = any || word != 0;
    if (!any) unwritten_.erase(found);
  }
}

}  // namespace kipp::metal_emulation
