// Values that many JSON objects hold: lists, token ids, numbers of 32 bits.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "base/json.h"

namespace kipp {

// A JSON array with to_json of each item.
template <typename Items, typename ToJson>
Json array_json(const Items& items, ToJson to_json) {
  std::vector<Json> values;
  values.reserve(std::size(items));
  for (const auto& item : items) {
    values.push_back(to_json(item));
  }
  return Json::array(std::move(values));
}

// A list of token ids as a JSON array.
Json ids_json(std::span<const int32_t> ids);

// The nine digits that name a float exactly; null if it is not finite (JSON has no infinity).
Json float_json(float value);

}  // namespace kipp
