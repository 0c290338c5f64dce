// A reading position in untrusted bytes. Every step is checked against what is left; nothing is added that could wrap.
#pragma once

#include <fmt/format.h>

#include <cstring>

#include "gguf/format.h"

namespace kipp::gguf {

class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  // `field` names what is read, for the message.
  template <typename T>
  Result<T> number(std::string_view field) {
    if (remaining() < sizeof(T)) {
      return truncated(field, sizeof(T));
    }
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  Result<std::span<const std::byte>> take(uint64_t num_bytes, std::string_view field) {
    if (remaining() < num_bytes) {
      return truncated(field, num_bytes);
    }
    const auto taken = bytes_.subspan(position_, num_bytes);
    position_ += num_bytes;
    return taken;
  }

  // A GGUF string: its length in 8 bytes, then its characters.
  Result<std::string_view> string(std::string_view field) {
    KIPP_ASSIGN(const auto length, number<uint64_t>(field));
    KIPP_ASSIGN(const auto characters, take(length, field));
    return std::string_view(reinterpret_cast<const char*>(characters.data()), characters.size());
  }

 private:
  tl::unexpected<Error> truncated(std::string_view field, uint64_t needed) const {
    return artifact_error(field, fmt::format("{} bytes", needed),
                          fmt::format("{} bytes before the end of the file", remaining()), position_);
  }

  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

}  // namespace kipp::gguf
