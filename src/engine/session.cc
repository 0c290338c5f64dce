// One sequence: what it holds, and appending to it.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/seeded_fault.h"
#include "engine/evaluate.h"
#include "engine/model_impl.h"
#include "kipp/engine.h"
#include "sampling/sampler.h"

namespace kipp {
namespace {

RowClass row_class(bool generated) {
  return generated ? RowClass::kGenerated : RowClass::kPrompt;
}

// Where the logits lie: the backend's sampler equals the host's bit for bit.
Result<SampledToken> sample_in_backend(Session::Impl& session, const SampleRequest& request) {
  Backend& backend = *session.model->backend;
  RowResult result;
  KIPP_TRY(backend.sample(session.unread.step, {&request, 1}));
  session.unread.drawn = true;
  KIPP_TRY(backend.collect(session.unread.step, {&result, 1}));
  if (!result.finite) {
    return make_error(ErrorCode::kNumerical, "sampling: a logit is not finite");
  }
  return std::move(result.token);
}

}  // namespace

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Result<void> Session::append(std::span<const int32_t> tokens, bool generated) {
  const auto last_row = static_cast<int32_t>(tokens.size()) - 1;
  const Evaluation evaluation{impl_.get(), tokens, {&last_row, tokens.empty() ? 0U : 1U}, row_class(generated)};
  KIPP_TRY(evaluate(*impl_->model, {&evaluation, 1}, nullptr));
  return {};
}

Result<std::vector<std::vector<float>>> Session::append_all_logits(std::span<const int32_t> tokens, bool generated) {
  std::vector<int32_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  const Evaluation evaluation{impl_.get(), tokens, rows, row_class(generated)};
  std::vector<RowLogits> logits;
  KIPP_TRY(evaluate(*impl_->model, {&evaluation, 1}, &logits));
  return std::move(logits.front());
}

Result<void> Session::Impl::read_logits() {
  if (unread.step == 0) {
    return {};
  }
  const UnreadLogits where = unread;
  forget_unread();
  logits.resize(static_cast<size_t>(model->file.info().dimensions.vocab));
  auto read = model->backend->logits(where.step, where.row, logits);
  if (!read) {
    logits.clear();
  }
  return read;
}

void Session::Impl::set_unread(UnreadLogits where) {
  forget_unread();
  logits.clear();
  unread = where;
  model->unread.push_back(this);
}

void Session::Impl::forget_unread() {
  if (unread.step != 0) {
    std::erase(model->unread, this);
    unread = {};
  }
}

void Session::Impl::clear_logits() {
  forget_unread();
  logits.clear();
}

std::span<const float> Session::logits() const {
  static_cast<void>(impl_->read_logits());  // on error they are empty
  return impl_->logits;
}

Result<SampledToken> Session::sample(const SampleRequest& request) const {
  if (!impl_->has_logits()) {
    return make_error(ErrorCode::kInvalidArgument, "sampling: the session has no logits: append a token first");
  }
  SampleRequest here = request;
  here.position = length() - (seeded(Fault::kDrawPositionOffByOne) ? 1 : 0);
  if (impl_->unread.step != 0 && impl_->unread.num_rows == 1 && !impl_->unread.drawn) {
    return sample_in_backend(*impl_, here);
  }
  KIPP_TRY(impl_->read_logits());
  const int32_t num_tokens = impl_->model->tokenizer.num_tokens();
  const auto num_rows = static_cast<int32_t>(impl_->logits.size());
  return sample_token(impl_->logits, here, seeded(Fault::kPaddingSampled) ? num_rows : num_tokens);
}

int32_t Session::length() const {
  return static_cast<int32_t>(impl_->tokens.size());
}
std::span<const int32_t> Session::tokens() const {
  return impl_->tokens;
}
std::span<const int32_t> Session::block_table() const {
  return impl_->table.blocks();
}

Result<void> Session::truncate(int32_t new_length) {
  if (new_length < 0 || new_length > length()) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("truncating: expected a length in [0, {}], found {}", length(), new_length));
  }
  if (seeded(Fault::kStalePrefix)) new_length = std::min(length(), blocks_for(new_length) * kBlockPositions);
  if (new_length < length()) {
    impl_->table.shrink(new_length);
    impl_->tokens.resize(static_cast<size_t>(new_length));
    impl_->clear_logits();
  }
  return {};
}

void Session::reset() {
  if (seeded(Fault::kStaleReset)) return;
  impl_->table.shrink(0);
  impl_->tokens.clear();
  impl_->clear_logits();
}

}  // namespace kipp
