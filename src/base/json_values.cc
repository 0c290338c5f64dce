// One line each.
#include "base/json_values.h"

#include <cmath>

#include <fmt/format.h>

namespace kipp {

Json ids_json(std::span<const int32_t> ids) {
  return array_json(ids, [](int32_t id) { return Json::number(int64_t{id}); });
}

Json float_json(float value) {
  return std::isfinite(value) ? Json::number_literal(fmt::format("{:.9g}", value)) : Json();
}

}  // namespace kipp
