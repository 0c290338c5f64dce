// Checks everything, takes blocks, runs the planned steps, and only then changes the sessions.
#include "engine/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/seeded_fault.h"
#include "engine/step_plan.h"

namespace kipp {
namespace {

tl::unexpected<Error> invalid(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message));
}

// An error with the request it belongs to; a lone request needs no index.
tl::unexpected<Error> in_request(size_t index, size_t count, Error error) {
  if (count > 1) {
    error.message = fmt::format("request {}: {}", index, error.message);
  }
  return tl::unexpected<Error>(std::move(error));
}

int32_t length_of(const Session::Impl& session) {
  return static_cast<int32_t>(session.tokens.size());
}

Result<void> check_tokens(const Model::Impl& model, const Evaluation& evaluation) {
  const int32_t vocab = model.file.info().dimensions.vocab;
  const int32_t length = length_of(*evaluation.session);
  if (evaluation.tokens.empty()) {
    return invalid("expected at least one token");
  }
  for (size_t t = 0; t < evaluation.tokens.size(); ++t) {
    if (evaluation.tokens[t] < 0 || evaluation.tokens[t] >= vocab) {
      return invalid(fmt::format("token {}: expected an id in [0, {}), found {}", t, vocab, evaluation.tokens[t]));
    }
  }
  const auto room = static_cast<size_t>(model.limits.context - length);
  if (evaluation.tokens.size() > room) {
    return make_error(
        ErrorCode::kCapacity,
        fmt::format("{} tokens after {} already held exceed the context of {} by {}", evaluation.tokens.size(), length,
                    model.limits.context, evaluation.tokens.size() - room));
  }
  return {};
}

Result<void> check_head_rows(const Evaluation& evaluation) {
  int64_t previous = -1;
  for (size_t r = 0; r < evaluation.head_rows.size(); ++r) {
    const int64_t row = evaluation.head_rows[r];
    if (row <= previous || row >= static_cast<int64_t>(evaluation.tokens.size())) {
      return invalid(fmt::format("head_rows[{}]: expected ascending rows in [0, {}), found {} after {}", r,
                                 evaluation.tokens.size(), row, previous));
    }
    previous = row;
  }
  return {};
}

Result<void> check(const Model::Impl& model, std::span<const Evaluation> evaluations) {
  for (size_t i = 0; i < evaluations.size(); ++i) {
    const Evaluation& evaluation = evaluations[i];
    const auto same_session = [&](const Evaluation& other) { return other.session == evaluation.session; };
    if (evaluation.session->model != &model) {
      return in_request(i, evaluations.size(), {ErrorCode::kInvalidArgument, "the session belongs to another model"});
    }
    if (std::any_of(evaluations.begin(), evaluations.begin() + static_cast<ptrdiff_t>(i), same_session)) {
      return in_request(i, evaluations.size(), {ErrorCode::kInvalidArgument, "an earlier request names the session"});
    }
    if (auto checked = check_tokens(model, evaluation); !checked) {
      return in_request(i, evaluations.size(), std::move(checked).error());
    }
    if (auto checked = check_head_rows(evaluation); !checked) {
      return in_request(i, evaluations.size(), std::move(checked).error());
    }
  }
  return {};
}

// Takes the blocks of every evaluation's tokens, and gives them back unless the evaluation was committed.
class BlockReservation {
 public:
  explicit BlockReservation(std::span<const Evaluation> evaluations) : evaluations_(evaluations) {}
  BlockReservation(const BlockReservation&) = delete;
  BlockReservation& operator=(const BlockReservation&) = delete;
  ~BlockReservation() {
    if (seeded(Fault::kFailedStepKeepsBlocks)) return;
    for (const Evaluation& evaluation : evaluations_) {
      evaluation.session->table.shrink(length_of(*evaluation.session));
    }
  }

  Result<void> take() {
    for (size_t i = 0; i < evaluations_.size(); ++i) {
      Session::Impl& session = *evaluations_[i].session;
      const auto grown = session.table.grow(length_of(session) + static_cast<int32_t>(evaluations_[i].tokens.size()));
      if (!grown) {
        return in_request(i, evaluations_.size(), grown.error());
      }
    }
    return {};
  }

 private:
  std::span<const Evaluation> evaluations_;
};

bool has_last_row(const Evaluation& evaluation) {
  return !evaluation.head_rows.empty() &&
         static_cast<size_t>(evaluation.head_rows.back()) + 1 == evaluation.tokens.size();
}

// What an evaluation's last row left: logits that were fetched, or where they lie.
struct LastRow {
  std::vector<float> logits;
  UnreadLogits unread;
};

// The logits of a step's head rows go to `rows`, if wanted. Those of an evaluation's last token stay where they are
// after the final step, which nothing overwrites yet.
Result<void> fetch_logits(Model::Impl& model, StepId step, std::span<const Evaluation> evaluations,
                          std::span<const PlannedSpan> planned, bool is_final, std::vector<RowLogits>* rows,
                          std::vector<LastRow>& last) {
  const auto vocab = static_cast<size_t>(model.file.info().dimensions.vocab);
  int32_t num_rows = 0;
  for (const PlannedSpan& part : planned) {
    num_rows += static_cast<int32_t>(part.head_count);
  }
  int32_t row = 0;
  for (const PlannedSpan& part : planned) {
    const Evaluation& evaluation = evaluations[part.run];
    for (size_t h = part.head_begin; h < part.head_begin + part.head_count; ++h, ++row) {
      if (rows != nullptr) {
        std::vector<float>& logits = (*rows)[part.run].emplace_back(vocab);
        KIPP_TRY(model.backend->logits(step, row, logits));
      }
      if (h + 1 < evaluation.head_rows.size() || !has_last_row(evaluation)) {
        continue;
      }
      LastRow& kept = last[part.run];
      if (is_final) {
        kept.unread = {.step = step, .row = row, .num_rows = num_rows};
      } else if (rows != nullptr) {
        kept.logits = (*rows)[part.run].back();
      } else {
        kept.logits.resize(vocab);
        KIPP_TRY(model.backend->logits(step, row, kept.logits));
      }
    }
  }
  return {};
}

// One planned step on the backend.
Result<StepId> run_step(Model::Impl& model, std::span<const Evaluation> evaluations,
                        std::span<const PlannedSpan> planned) {
  std::vector<Span> spans;
  std::vector<TokenRef> tokens;
  std::vector<int32_t> head_rows;
  for (const PlannedSpan& part : planned) {
    const Evaluation& evaluation = evaluations[part.run];
    const auto first_row = static_cast<int32_t>(tokens.size()) - static_cast<int32_t>(part.begin);
    for (const int32_t row : evaluation.head_rows.subspan(part.head_begin, part.head_count)) {
      head_rows.push_back(first_row + row);
    }
    for (const int32_t token : evaluation.tokens.subspan(part.begin, part.count)) {
      tokens.push_back({.token = token});
    }
    const int32_t first_position = length_of(*evaluation.session) + static_cast<int32_t>(part.begin);
    const auto num_tokens = static_cast<int32_t>(part.count);
    const auto num_blocks = static_cast<size_t>(blocks_for(first_position + num_tokens));
    spans.push_back({.slot = static_cast<int32_t>(spans.size()),
                     .first_position = first_position,
                     .num_tokens = num_tokens,
                     .row_class = seeded(Fault::kRowClassIgnored) ? RowClass::kPrompt : evaluation.row_class,
                     .block_table = evaluation.session->table.blocks().first(num_blocks)});
  }
  KIPP_ASSIGN(const StepId step, model.backend->forward({.spans = spans, .tokens = tokens, .head_rows = head_rows}));
  KIPP_TRY(model.backend->collect(step, {}));
  return step;
}

void commit(const Evaluation& evaluation, LastRow& last) {
  Session::Impl& session = *evaluation.session;
  session.tokens.insert(session.tokens.end(), evaluation.tokens.begin(), evaluation.tokens.end());
  session.clear_logits();
  if (last.unread.step != 0) {
    session.set_unread(last.unread);
  } else {
    std::swap(session.logits, last.logits);
  }
}

// The backend's next step overwrites the logits of its last one: those that another session may still ask for are
// fetched. The evaluations' own sessions get new ones.
Result<void> rescue_logits(Model::Impl& model, std::span<const Evaluation> evaluations) {
  const std::vector<Session::Impl*> unread = model.unread;  // reading changes the list
  for (Session::Impl* session : unread) {
    const auto is_own = [session](const Evaluation& evaluation) { return evaluation.session == session; };
    if (std::ranges::none_of(evaluations, is_own)) {
      KIPP_TRY(session->read_logits());
    }
  }
  return {};
}

}  // namespace

Result<void> evaluate(Model::Impl& model, std::span<const Evaluation> evaluations, std::vector<RowLogits>* rows) {
  KIPP_TRY(check(model, evaluations));
  BlockReservation reservation(evaluations);
  KIPP_TRY(reservation.take());
  std::vector<TokenRun> runs;
  for (const Evaluation& evaluation : evaluations) {
    runs.push_back({evaluation.tokens.size(), evaluation.head_rows});
  }
  if (rows != nullptr) {
    rows->assign(evaluations.size(), {});
  }
  KIPP_TRY(rescue_logits(model, evaluations));
  std::vector<LastRow> last(evaluations.size());
  const std::vector<std::vector<PlannedSpan>> steps = plan_steps(runs, model.limits);
  for (const std::vector<PlannedSpan>& planned : steps) {
    KIPP_ASSIGN(const StepId step, run_step(model, evaluations, planned));
    KIPP_TRY(fetch_logits(model, step, evaluations, planned, &planned == &steps.back(), rows, last));
  }
  for (size_t i = 0; i < evaluations.size(); ++i) {
    commit(evaluations[i], last[i]);
  }
  return {};
}

}  // namespace kipp
