// Base64 (RFC 4648, standard alphabet, padded) for arbitrary bytes in JSON.
#pragma once

#include <string>
#include <string_view>

#include "kipp/error.h"

namespace kipp::cli {

// Strict: no blanks, full padding, unused bits zero. Errors: kInvalidArgument naming the offset.
Result<std::string> decode_base64(std::string_view text);

}  // namespace kipp::cli
