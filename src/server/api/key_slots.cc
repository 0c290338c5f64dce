// One lock for all keys: it is held for an addition.
#include "server/api/key_slots.h"

namespace kipp::api {

KeySlots::KeySlots(std::vector<KeyInfo> keys) : keys_(std::move(keys)), num_taken_(keys_.size()) {}

bool KeySlots::take(int32_t key_index, Slot& slot) {
  if (key_index < 0 || static_cast<size_t>(key_index) >= keys_.size()) return true;
  const auto key = static_cast<size_t>(key_index);
  {
    const std::lock_guard lock(mutex_);
    if (keys_[key].max_requests > 0 && num_taken_[key] >= keys_[key].max_requests) return false;
    ++num_taken_[key];
  }
  slot = Slot(this, key);
  return true;
}

void KeySlots::Slot::release() {
  KeySlots* slots = std::exchange(slots_, nullptr);
  if (slots == nullptr) return;
  const std::lock_guard lock(slots->mutex_);
  --slots->num_taken_[key_];
}

std::string KeySlots::name(int32_t key_index) const {
  return key_index < 0 || static_cast<size_t>(key_index) >= keys_.size() ? std::string()
                                                                         : keys_[static_cast<size_t>(key_index)].name;
}

int32_t KeySlots::limit(int32_t key_index) const {
  return key_index < 0 || static_cast<size_t>(key_index) >= keys_.size()
             ? 0
             : keys_[static_cast<size_t>(key_index)].max_requests;
}

}  // namespace kipp::api
