// Every step is executed when it is made, so its ids are on the "device" before anybody collects them.
#include "scheduler/fake_model.h"

#include <fmt/format.h>

#include <algorithm>

namespace kipp::simulation {
namespace {

uint64_t mix(uint64_t state, uint64_t value) {
  state = (state ^ value) * 0xD6E8FEB86659FD93U;
  state = (state ^ (state >> 32)) * 0xD6E8FEB86659FD93U;
  return state ^ (state >> 32);
}

std::string name(const SequenceId& id) {
  return fmt::format("request {}, choice {}", id.request, id.choice);
}

}  // namespace

int32_t next_token(std::span<const Cell> context, const Draw& draw) {
  uint64_t state = mix(draw.seed + 1, static_cast<uint64_t>(draw.choice));
  for (const Cell& cell : context) {
    state = mix(state, static_cast<uint64_t>(cell.token));
    state = mix(state, static_cast<uint64_t>(cell.position) * 2 + (cell.generated ? 1U : 0U));
  }
  return static_cast<int32_t>(state % kVocab);
}

bool stops(int32_t token, int32_t stop_every) {
  return stop_every > 0 && token % stop_every == 0;
}

std::vector<int32_t> alone(const SchedulerRequest& request, const Draw& draw, int32_t stop_every) {
  std::vector<Cell> context;
  for (const int32_t token : request.prompt_ids) {
    context.push_back({token, static_cast<int32_t>(context.size()), false});
  }
  std::vector<int32_t> tokens;
  while (static_cast<int32_t>(tokens.size()) < request.max_new_tokens) {
    tokens.push_back(next_token(context, draw));
    if (stops(tokens.back(), stop_every)) {
      break;
    }
    context.push_back({tokens.back(), static_cast<int32_t>(context.size()), true});
  }
  return tokens;
}

Device::Device(int32_t num_blocks, const SchedulerOptions& limits) : limits_(limits) {
  pool_.assign(static_cast<size_t>(num_blocks), std::vector<Cell>(kBlockPositions));
  owners_.resize(static_cast<size_t>(num_blocks));
}

Cell& Device::cell(const ScheduledSpan& span, int32_t position) {
  const int32_t block = span.block_table[static_cast<size_t>(position / kBlockPositions)];
  return pool_[static_cast<size_t>(block)][static_cast<size_t>(position % kBlockPositions)];
}

const Cell& Device::cell(const ScheduledSpan& span, int32_t position) const {
  return const_cast<Device*>(this)->cell(span, position);
}

std::string Device::forward(const ScheduledStep& step) {
  if (in_flight_.size() >= (limits_.look_ahead ? 2U : 1U)) {
    return "too many steps in flight";
  }
  if (std::string error = check(step); !error.empty()) {
    return error;
  }
  if (std::string error = copy(step); !error.empty()) {
    return error;
  }
  if (std::string error = write(step); !error.empty()) {
    return error;
  }
  InFlight record{.step = step, .ids = draw(step), .named = {}};
  for (const ScheduledSpan& span : step.spans) {
    record.named.insert(span.block_table.begin(), span.block_table.end());
  }
  record.named.insert(step.copy_from.begin(), step.copy_from.end());
  record.named.insert(step.copy_to.begin(), step.copy_to.end());
  previous_ids_ = record.ids;
  in_flight_.push_back(std::move(record));
  num_rows_ += step.tokens.size();
  num_copies_ += step.copy_to.size();
  return {};
}

std::vector<int32_t> Device::collect() {
  std::vector<int32_t> ids = std::move(in_flight_.front().ids);
  in_flight_.erase(in_flight_.begin());
  return ids;
}

std::string Device::check(const ScheduledStep& step) const {
  std::map<int32_t, int32_t> names;
  std::set<int32_t> slots;
  int32_t num_tokens = 0;
  for (const ScheduledSpan& span : step.spans) {
    num_tokens += span.num_tokens;
    for (const int32_t block : span.block_table) {
      ++names[block];
    }
    if (span.slot < 0 || span.slot >= limits_.max_sequences || !slots.insert(span.slot).second) {
      return fmt::format("{} has slot {}, which is out of range or another's", name(span.sequence), span.slot);
    }
  }
  if (step.spans.empty() || num_tokens != static_cast<int32_t>(step.tokens.size()) ||
      num_tokens > limits_.max_tokens_per_step || step.spans.size() > static_cast<size_t>(limits_.max_sequences) ||
      step.head_rows.size() > static_cast<size_t>(limits_.max_head_rows) || step.rows.size() != step.head_rows.size()) {
    return fmt::format("{} spans of {} tokens, {} given, {} head rows, {} sampled: beyond a limit, or they disagree",
                       step.spans.size(), num_tokens, step.tokens.size(), step.head_rows.size(), step.rows.size());
  }
  for (const ScheduledSpan& span : step.spans) {
    if (std::string error = check_span(span, names); !error.empty()) {
      return error;
    }
  }
  for (size_t i = 0; i < step.head_rows.size(); ++i) {
    if (step.head_rows[i] >= num_tokens || step.head_rows[i] < 0 ||
        (i > 0 && step.head_rows[i] <= step.head_rows[i - 1])) {
      return "head rows out of range or order";
    }
  }
  return {};
}

std::string Device::check_span(const ScheduledSpan& span, const std::map<int32_t, int32_t>& names) const {
  const int32_t end = span.first_position + span.num_tokens;
  if (span.num_tokens < 1 || span.first_position < 0 || end > limits_.context ||
      span.block_table.size() != static_cast<size_t>((end + kBlockPositions - 1) / kBlockPositions)) {
    return fmt::format("{}: positions {} to {} in {} blocks", name(span.sequence), span.first_position, end,
                       span.block_table.size());
  }
  for (auto i = static_cast<size_t>(span.first_position / kBlockPositions); i < span.block_table.size(); ++i) {
    if (names.at(span.block_table[i]) != 1) {
      return fmt::format("{} writes block {}, which the step names more than once", name(span.sequence),
                         span.block_table[i]);
    }
  }
  return {};
}

// A block that a step in flight names may only be written by whoever wrote it before.
std::string Device::claim(int32_t block, const SequenceId& owner) {
  SequenceId& before = owners_[static_cast<size_t>(block)];
  for (const InFlight& step : in_flight_) {
    if (step.named.contains(block) && before != owner) {
      return fmt::format("{} writes block {} of {}, which step {} names", name(owner), block, name(before),
                         step.step.id);
    }
  }
  before = owner;
  return {};
}

std::string Device::copy(const ScheduledStep& step) {
  if (step.copy_from.size() != step.copy_to.size()) {
    return "copies from and to other numbers of blocks";
  }
  for (size_t i = 0; i < step.copy_to.size(); ++i) {
    const int32_t to = step.copy_to[i];
    if (std::ranges::count(step.copy_to, to) != 1 || std::ranges::count(step.copy_from, to) != 0) {
      return fmt::format("block {} is copied to twice, or from and to", to);
    }
    const auto is_owner = [to](const ScheduledSpan& span) { return std::ranges::count(span.block_table, to) != 0; };
    const auto owner = std::ranges::find_if(step.spans, is_owner);
    if (owner == step.spans.end()) {
      return fmt::format("block {} is copied to for nobody", to);
    }
    if (std::string error = claim(to, owner->sequence); !error.empty()) {
      return error;
    }
    pool_[static_cast<size_t>(to)] = pool_[static_cast<size_t>(step.copy_from[i])];
  }
  return {};
}

std::string Device::write(const ScheduledStep& step) {
  size_t t = 0;
  for (const ScheduledSpan& span : step.spans) {
    const int32_t end = span.first_position + span.num_tokens;
    for (auto i = static_cast<size_t>(span.first_position / kBlockPositions); i < span.block_table.size(); ++i) {
      if (std::string error = claim(span.block_table[i], span.sequence); !error.empty()) {
        return error;
      }
    }
    for (int32_t position = span.first_position; position < end; ++position, ++t) {
      const ScheduledToken& token = step.tokens[t];
      if (token.from_row >= static_cast<int32_t>(previous_ids_.size())) {
        return fmt::format("{} takes row {} of {}", name(span.sequence), token.from_row, previous_ids_.size());
      }
      const int32_t id = token.from_row >= 0 ? previous_ids_[static_cast<size_t>(token.from_row)] : token.token;
      cell(span, position) = {id, position, span.generated};
    }
  }
  return {};
}

std::vector<int32_t> Device::draw(const ScheduledStep& step) const {
  std::vector<int32_t> ids;
  size_t row = 0;
  int32_t first_token = 0;
  for (const ScheduledSpan& span : step.spans) {
    for (; row < step.head_rows.size() && step.head_rows[row] < first_token + span.num_tokens; ++row) {
      const int32_t position = span.first_position + step.head_rows[row] - first_token;
      std::vector<Cell> context;
      for (int32_t p = 0; p <= position; ++p) {
        context.push_back(cell(span, p));
      }
      const bool is_consistent = step.rows[row].position == position + 1 && step.rows[row].sequence == span.sequence;
      ids.push_back(is_consistent ? next_token(context, {seeds_.at(span.sequence.request), span.sequence.choice}) : 0);
    }
    first_token += span.num_tokens;
  }
  return ids;
}

}  // namespace kipp::simulation
