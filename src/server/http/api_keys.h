// Which API key a request comes with.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http_server.h"

namespace kipp::http {

class ApiKeys {
 public:
  explicit ApiKeys(const std::vector<std::string>& keys);

  bool empty() const { return digests_.empty(); }
  // The index of the key in `Authorization: Bearer …`, or else in `X-Api-Key`; nullopt: none, or an unknown one.
  // How long it takes says neither how much of a key was right nor which one it was.
  std::optional<int32_t> find(const std::vector<Header>& headers) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  std::optional<int32_t> find_key(std::string_view key) const;

  std::vector<Digest> digests_;
};

}  // namespace kipp::http
