// Fields of one JSON Lines object: known names only, right types, errors that name the field.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "kipp/error.h"

namespace kipp::cli {

// Errors: kInvalidArgument naming the first field that is not known, and those that are.
Result<void> check_field_names(const Json& object, std::span<const std::string_view> known);

// Two lists of names as one.
template <size_t kA, size_t kB>
constexpr std::array<std::string_view, kA + kB> joined(const std::array<std::string_view, kA>& a,
                                                       const std::array<std::string_view, kB>& b) {
  std::array<std::string_view, kA + kB> names;
  std::ranges::copy(b, std::ranges::copy(a, names.begin()).out);
  return names;
}

// kInvalidArgument for a field whose value is not what it must be. found: nullptr if there is none.
tl::unexpected<Error> wrong_field(std::string_view name, std::string_view expected, const Json* found);

// Null counts as absent. Errors: kInvalidArgument naming the field, the expected and the found type or range.
Result<std::optional<std::string>> string_field(const Json& object, std::string_view name);
Result<std::optional<bool>> bool_field(const Json& object, std::string_view name);
Result<std::optional<float>> float_field(const Json& object, std::string_view name);
Result<std::optional<int32_t>> int_field(const Json& object, std::string_view name);
Result<std::optional<uint64_t>> uint64_field(const Json& object, std::string_view name);
// Required. Ids of 2^31 to 2^32 - 1, which no token has, become 2^31 - 1, which none has either.
Result<std::vector<int32_t>> ids_field(const Json& object, std::string_view name);

}  // namespace kipp::cli
