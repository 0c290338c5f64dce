// Keys are compared as SHA-256 digests, all of them and to their ends (api_keys.h).
#include "server/http/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>

#include "server/http/request_head.h"

namespace kipp::http {
namespace {

std::array<uint8_t, 32> digest_of(std::string_view key) {
  std::array<uint8_t, 32> digest{};
  ::SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

}  // namespace

ApiKeys::ApiKeys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    digests_.push_back(digest_of(key));
  }
}

std::optional<int32_t> ApiKeys::find(const std::vector<Header>& headers) const {
  constexpr std::string_view kScheme = "bearer ";
  if (const std::string* value = find_header(headers, "authorization")) {
    std::string_view rest = *value;
    if (rest.size() > kScheme.size() && equals_ignoring_case(rest.substr(0, kScheme.size()), kScheme)) {
      rest.remove_prefix(std::min(rest.find_first_not_of(' ', kScheme.size()), rest.size()));
      if (const std::optional<int32_t> found = find_key(rest)) {
        return found;
      }
    }
  }
  const std::string* value = find_header(headers, "x-api-key");
  return value != nullptr ? find_key(*value) : std::nullopt;
}

std::optional<int32_t> ApiKeys::find_key(std::string_view key) const {
  const Digest digest = digest_of(key);
  int32_t found = -1;
  for (size_t i = 0; i < digests_.size(); ++i) {
    const bool same = ::CRYPTO_memcmp(digest.data(), digests_[i].data(), digest.size()) == 0;
    found = same ? static_cast<int32_t>(i) : found;
  }
  return found >= 0 ? std::optional(found) : std::nullopt;
}

}  // namespace kipp::http
