// The interface as an OpenAPI 3.1 document, made from the tables that the parsers use.
#pragma once

#include <string_view>

#include "base/json.h"
#include "server/openai/requests.h"
#include "server/openai/schema.h"

namespace kipp::openai {

// JSON Schema of a value. Members of objects that are not required may be null.
Json schema_json(const Type& type, const Rules& rules);

// What GET /openapi.json answers.
Json openapi_json(const Defaults& defaults, std::string_view version);

}  // namespace kipp::openai
