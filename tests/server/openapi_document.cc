// Prints the OpenAPI document of a server with standard settings: what docs/openapi.json holds.
#include <cstdio>

#include "kipp/version.h"
#include "server/openai/openapi.h"

int main() {
  const std::string text = kipp::write_json(kipp::openai::openapi_json({}, kipp::kVersion));
  return std::puts(text.c_str()) < 0 ? 1 : 0;
}
