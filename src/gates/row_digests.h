// Bitwise comparison of many rows of logits without keeping them: a 64-bit digest of each.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gates/cancel.h"
#include "kipp/engine.h"
#include "kipp/error.h"

namespace kipp::gates {

// One digest a position. Equal digests stand for equal bits: a chance of 2^-64 each is none.
using RowDigests = std::vector<uint64_t>;

// Of one row. A row with a NaN or an infinity is kNumerical: what must not be read was read.
Result<uint64_t> row_digest(std::span<const float> row);

// Appends ids in pieces of the given sizes, which repeat; digests of every row.
Result<RowDigests> digests_in_pieces(Session& session, std::span<const int32_t> ids, std::span<const size_t> sizes,
                                     bool generated, const CancelCheck& is_cancelled = {});

// Where two lists first differ, in words; empty if nowhere.
std::vector<std::string> digest_differences(std::string_view what, const RowDigests& found, const RowDigests& expected);

}  // namespace kipp::gates
