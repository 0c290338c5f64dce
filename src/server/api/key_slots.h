// How many requests of each API key may generate at a time.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace kipp::api {

// A key as the log and the limits know it; never the key itself.
struct KeyInfo {
  std::string name;
  int32_t max_requests = 0;  // 0: any number
};

class KeySlots {
 public:
  // By http::Request::key_index. Outlives its slots.
  explicit KeySlots(std::vector<KeyInfo> keys);

  // A place among its key's requests, until it is destroyed.
  class Slot {
   public:
    Slot() = default;
    Slot(Slot&& other) noexcept : slots_(std::exchange(other.slots_, nullptr)), key_(other.key_) {}
    Slot& operator=(Slot&& other) noexcept {
      std::swap(slots_, other.slots_);
      std::swap(key_, other.key_);
      return *this;
    }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    ~Slot() { release(); }
    void release();

   private:
    friend class KeySlots;
    Slot(KeySlots* slots, size_t key) : slots_(slots), key_(key) {}
    KeySlots* slots_ = nullptr;
    size_t key_ = 0;
  };
  // False: the key has as many as it may. A request without a key (-1) is never refused.
  bool take(int32_t key_index, Slot& slot);

  // "" for -1.
  std::string name(int32_t key_index) const;
  int32_t limit(int32_t key_index) const;

 private:
  const std::vector<KeyInfo> keys_;
  std::mutex mutex_;
  std::vector<int32_t> num_taken_;  // [keys]
};

}  // namespace kipp::api
