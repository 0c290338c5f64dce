// Every message names the index, what was expected and what was found.
#include "backend/validate_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace kipp {
namespace {

tl::unexpected<Error> invalid(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message));
}

Result<void> check_counts(const Batch& batch, const Limits& limits) {
  const auto check = [](const char* what, size_t found, size_t minimum, int32_t maximum) -> Result<void> {
    if (found < minimum || found > static_cast<size_t>(maximum)) {
      return invalid(fmt::format("batch: expected {} to {} {}, found {}", minimum, maximum, what, found));
    }
    return {};
  };
  KIPP_TRY(check("spans", batch.spans.size(), 1, limits.max_sequences));
  KIPP_TRY(check("tokens", batch.tokens.size(), 1, limits.max_tokens_per_step));
  return check("head rows", batch.head_rows.size(), 0, limits.max_head_rows);
}

// first_position, num_tokens and the size of the table; written so that no sum can overflow.
Result<void> check_extent(const Span& span, size_t index, const Limits& limits) {
  if (span.slot < 0 || span.slot >= limits.max_sequences) {
    return invalid(
        fmt::format("span {}: expected a slot in [0, {}), found {}", index, limits.max_sequences, span.slot));
  }
  if (span.num_tokens < 1) {
    return invalid(fmt::format("span {}: expected at least one token, found {}", index, span.num_tokens));
  }
  if (span.first_position < 0 || span.num_tokens > limits.context ||
      span.first_position > limits.context - span.num_tokens) {
    return invalid(fmt::format("span {}: expected positions in [0, {}), found {} tokens from position {}", index,
                               limits.context, span.num_tokens, span.first_position));
  }
  const int32_t end = span.first_position + span.num_tokens;
  const auto expected = static_cast<size_t>((end + kBlockPositions - 1) / kBlockPositions);
  if (span.block_table.size() != expected) {
    return invalid(fmt::format("span {}: positions below {} need a table of {} blocks, found {}", index, end, expected,
                               span.block_table.size()));
  }
  return {};
}

Result<void> check_block_ids(const Batch& batch, int32_t num_blocks) {
  for (size_t s = 0; s < batch.spans.size(); ++s) {
    const auto table = batch.spans[s].block_table;
    for (size_t i = 0; i < table.size(); ++i) {
      if (table[i] < 0 || table[i] >= num_blocks) {
        return invalid(
            fmt::format("span {}: block_table[{}]: expected a block in [0, {}), found {}", s, i, num_blocks, table[i]));
      }
    }
  }
  return {};
}

// A block that a span writes may be named only once in the whole batch: sequences share only what is complete.
Result<void> check_written_blocks(const Batch& batch, int32_t num_blocks) {
  std::vector<int32_t> names(static_cast<size_t>(num_blocks), 0);
  for (const Span& span : batch.spans) {
    for (const int32_t block : span.block_table) {
      ++names[static_cast<size_t>(block)];
    }
  }
  for (size_t s = 0; s < batch.spans.size(); ++s) {
    const auto table = batch.spans[s].block_table;
    for (auto i = static_cast<size_t>(batch.spans[s].first_position / kBlockPositions); i < table.size(); ++i) {
      if (names[static_cast<size_t>(table[i])] != 1) {
        return invalid(fmt::format("span {}: block {} is written (block_table[{}]), but the batch names it {} times", s,
                                   table[i], i, names[static_cast<size_t>(table[i])]));
      }
    }
  }
  return {};
}

Result<void> check_spans(const Batch& batch, const Limits& limits, int32_t num_blocks) {
  std::vector<bool> slot_taken(static_cast<size_t>(limits.max_sequences), false);
  size_t num_tokens = 0;
  for (size_t s = 0; s < batch.spans.size(); ++s) {
    KIPP_TRY(check_extent(batch.spans[s], s, limits));
    const auto slot = static_cast<size_t>(batch.spans[s].slot);
    if (slot_taken[slot]) {
      return invalid(fmt::format("span {}: slot {} belongs to an earlier span of the batch", s, slot));
    }
    slot_taken[slot] = true;
    num_tokens += static_cast<size_t>(batch.spans[s].num_tokens);
  }
  if (num_tokens != batch.tokens.size()) {
    return invalid(fmt::format("batch: the spans have {} tokens, but {} are given", num_tokens, batch.tokens.size()));
  }
  KIPP_TRY(check_block_ids(batch, num_blocks));
  return check_written_blocks(batch, num_blocks);
}

Result<void> check_tokens(const Batch& batch, int32_t vocab, int32_t num_previous_rows) {
  for (size_t t = 0; t < batch.tokens.size(); ++t) {
    const TokenRef& token = batch.tokens[t];
    if (token.from_row >= num_previous_rows) {
      return invalid(fmt::format("token {}: expected a row sampled by the previous step, in [0, {}), found {}", t,
                                 num_previous_rows, token.from_row));
    }
    if (token.from_row < 0 && (token.token < 0 || token.token >= vocab)) {
      return invalid(fmt::format("token {}: expected an id in [0, {}), found {}", t, vocab, token.token));
    }
  }
  return {};
}

Result<void> check_head_rows(const Batch& batch) {
  int64_t previous = -1;
  for (size_t r = 0; r < batch.head_rows.size(); ++r) {
    const int64_t row = batch.head_rows[r];
    if (row <= previous || row >= static_cast<int64_t>(batch.tokens.size())) {
      return invalid(fmt::format("head_rows[{}]: expected ascending rows in [0, {}), found {} after {}", r,
                                 batch.tokens.size(), row, previous));
    }
    previous = row;
  }
  return {};
}

}  // namespace

Result<void> validate_batch(const Batch& batch, const Limits& limits, int32_t num_blocks, int32_t vocab,
                            int32_t num_previous_rows) {
  KIPP_TRY(check_counts(batch, limits));
  KIPP_TRY(check_spans(batch, limits, num_blocks));
  KIPP_TRY(check_tokens(batch, vocab, num_previous_rows));
  return check_head_rows(batch);
}

Result<void> validate_limits(std::string_view backend, const Limits& limits, int32_t num_blocks) {
  if (limits.max_tokens_per_step < 1 || limits.max_sequences < 1 || limits.max_head_rows < 1 || limits.context < 1 ||
      num_blocks < 1) {
    return invalid(fmt::format("{}: every limit and the number of KV blocks must be at least 1", backend));
  }
  return {};
}

Result<void> validate_stateless(std::span<const int32_t> tokens, const Limits& limits, int32_t vocab) {
  if (tokens.empty()) {
    return invalid("stateless evaluation: expected at least one token");
  }
  if (tokens.size() > static_cast<size_t>(limits.context)) {
    return make_error(ErrorCode::kCapacity, fmt::format("stateless evaluation: {} tokens exceed the context of {}",
                                                        tokens.size(), limits.context));
  }
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (tokens[t] < 0 || tokens[t] >= vocab) {
      return invalid(fmt::format("token {}: expected an id in [0, {}), found {}", t, vocab, tokens[t]));
    }
  }
  return {};
}

Result<void> validate_block(int32_t block, int32_t num_blocks) {
  if (block < 0 || block >= num_blocks) {
    return invalid(fmt::format("expected a KV block in [0, {}), found {}", num_blocks, block));
  }
  return {};
}

Result<void> validate_block_copies(std::span<const int32_t> from, std::span<const int32_t> to, int32_t num_blocks) {
  if (from.size() != to.size()) {
    return invalid(fmt::format("copying KV blocks: {} sources, {} targets", from.size(), to.size()));
  }
  for (size_t i = 0; i < from.size(); ++i) {
    KIPP_TRY(validate_block(from[i], num_blocks));
    KIPP_TRY(validate_block(to[i], num_blocks));
    if (std::ranges::find(from, to[i]) != from.end()) {
      return invalid(fmt::format("copying KV blocks: block {} is a source and a target", to[i]));
    }
  }
  return {};
}

}  // namespace kipp
