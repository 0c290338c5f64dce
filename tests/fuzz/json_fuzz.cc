// Any bytes: parsed or refused with a printable message; what is parsed survives being written and read again.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "fuzz/require.h"

namespace {

using kipp::fuzzing::require;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const kipp::Result<kipp::Json> json = kipp::parse_json(text);
  if (!json) {
    require(!json.error().message.empty() && json.error().message.size() < 400);
    require(kipp::parse_json(kipp::write_json(kipp::Json::string(json.error().message))).has_value());
    return 0;
  }
  const std::string compact = kipp::write_json(*json);
  const kipp::Result<kipp::Json> again = kipp::parse_json(compact);
  require(again.has_value() && kipp::write_json(*again) == compact);
  const std::string python = kipp::write_python_json(*json);
  const kipp::Result<kipp::Json> from_python = kipp::parse_json(python);
  require(from_python.has_value() && kipp::write_python_json(*from_python) == python);
  return 0;
}
