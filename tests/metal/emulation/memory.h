// What a kernel may touch, and the detectors that every access passes: bounds, writes to what is only to be read, bytes
// that nobody wrote, and races between threads that no barrier keeps apart.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace kipp::metal_emulation {

enum class Space : uint8_t { kDevice, kThreadgroup };

// A piece of memory that the running kernel may touch.
struct Range {
  uintptr_t begin = 0, end = 0;
  Space space = Space::kDevice;
  bool writable = false;
  bool tracked = false;  // some range over these bytes is writable: accesses are remembered
  std::string name;
};

// Who touches memory, and how often it passed barriers: accesses of two threads are ordered by a barrier between them.
struct Accessor {
  uint32_t group = 0;   // number of the threadgroup, from 1
  uint32_t thread = 0;  // index in it
  std::array<uint32_t, 2> epoch = {};       // threadgroup barriers passed, by Space
  std::array<uint32_t, 2> simd_epoch = {};  // simdgroup barriers passed, by Space
};

// Two bytes of tracked memory: the last write and the last reads.
struct Cell {
  struct Access {
    uint32_t group = 0;  // 0: none
    uint32_t epoch = 0;
    uint32_t simd_epoch = 0;
    uint32_t thread = 0;
  };
  enum class Readers : uint8_t { kOne, kOneSimdgroup, kOneThreadgroup, kSeveralThreadgroups };
  Access write, read;
  Readers readers = Readers::kOne;
  bool initialised = false;  // of threadgroup memory
};

class Memory {
 public:
  // A dispatch: ranges of buffers and bytes. Forgets all accesses.
  void begin_dispatch(std::vector<Range> ranges);
  // A threadgroup: its static variables hold nothing yet.
  void begin_group(const std::vector<Range>& threadgroup);
  // Program-scope variables of the kernels' translation units, which may be read.
  void set_program_scope(std::vector<Range> ranges) { program_scope_ = std::move(ranges); }

  // Empty, or what is wrong with this access.
  std::string access(uintptr_t address, size_t size, bool write, const Accessor& who);

  void mark_uninitialised(uintptr_t begin, size_t length);
  void mark_initialised(uintptr_t begin, size_t length);

 private:
  static constexpr uintptr_t kPageBytes = 256;
  static constexpr uintptr_t kCellBytes = 2;
  using Page = std::array<Cell, kPageBytes / kCellBytes>;

  const Range* find(uintptr_t address, bool write);
  Cell& cell(uintptr_t address);
  std::string track(const Range& range, uintptr_t address, size_t size, bool write, const Accessor& who);
  std::string outside(uintptr_t address, size_t size, bool write) const;
  std::string check_initialised(const Range& range, uintptr_t address, size_t size, bool write);

  std::vector<Range> ranges_;
  std::vector<Range> program_scope_;
  size_t num_device_ = 0;  // of ranges_; those of threadgroup memory follow
  size_t last_ = 0;        // found last
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;  // by address / kPageBytes
  uintptr_t last_page_ = 0;
  Page* last_page_cells_ = nullptr;
  std::unordered_map<uintptr_t, std::array<uint64_t, kPageBytes / 64>> unwritten_;  // a bit a byte
};

}  // namespace kipp::metal_emulation
