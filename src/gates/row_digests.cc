// FNV-1a over the words of a row, with a final mix so that every word reaches every bit.
#include "gates/row_digests.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace kipp::gates {

Result<uint64_t> row_digest(std::span<const float> row) {
  uint64_t digest = 0xCBF29CE484222325U;
  for (const float value : row) {
    if (!std::isfinite(value)) {
      return make_error(ErrorCode::kNumerical, fmt::format("a logit is {}", value));
    }
    digest = (digest ^ std::bit_cast<uint32_t>(value)) * 0x9E3779B97F4A7C15U;
    digest ^= digest >> 32;
  }
  return digest;
}

Result<RowDigests> digests_in_pieces(Session& session, std::span<const int32_t> ids, std::span<const size_t> sizes,
                                     bool generated, const CancelCheck& is_cancelled) {
  RowDigests digests;
  size_t begin = 0;
  for (size_t piece = 0; begin < ids.size(); ++piece) {
    const size_t count = std::min(sizes[piece % sizes.size()], ids.size() - begin);
    KIPP_TRY(go_on(is_cancelled));
    KIPP_ASSIGN(const auto rows, session.append_all_logits(ids.subspan(begin, count), generated));
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto digest = row_digest(rows[i]);
      if (!digest) {
        return make_error(digest.error().code, fmt::format("position {}: {}", begin + i, digest.error().message));
      }
      digests.push_back(*digest);
    }
    begin += count;
  }
  return digests;
}

std::vector<std::string> digest_differences(std::string_view what, const RowDigests& found,
                                            const RowDigests& expected) {
  if (found == expected && !found.empty()) {
    return {};
  }
  const auto [differing, unused] = std::mismatch(found.begin(), found.end(), expected.begin(), expected.end());
  int64_t count = 0;
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    count += found[i] != expected[i] ? 1 : 0;
  }
  return {fmt::format("{}: {} of {} rows are not bitwise equal, the first at row {} ({} rows were expected)", what,
                      count, found.size(), differing - found.begin(), expected.size())};
}

}  // namespace kipp::gates
