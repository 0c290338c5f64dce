// Placement must not matter. The measure is a plain model that evaluates each prompt whole and alone; against it runs a
// model whose pool hands out its blocks in a scrambled order. The pool gives out first what was given back last, so
// that all memory not in use is filled with NaN again before each check. Every comparison is bitwise.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "backend/backend.h"
#include "gates/gate.h"
#include "gates/kernels.h"
#include "gates/poison.h"
#include "gates/row_digests.h"

namespace kipp::gates {
namespace {

constexpr uint64_t kPlacementSeed = 20261129;
constexpr size_t kMinTokens = 2 * kBlockPositions + 1;  // reaches a third block
constexpr size_t kWhole = size_t{1} << 30;
constexpr size_t kDecodedTogether = 40;  // positions: into a second block
constexpr size_t kCopies = 3;            // of each prompt then: enough rows for a device's kernels for many
// Cuts before, at and after block borders, and single tokens.
constexpr std::array<size_t, 7> kRaggedPieces = {1, 31, 33, 2, 17, 64, 5};

int32_t blocks_of(size_t num_tokens) {
  return static_cast<int32_t>((num_tokens + kBlockPositions - 1) / kBlockPositions);
}

// Enough for all prompts at once and as many again, so that most blocks stay unused: NaN unless something reads them.
int32_t num_scrambled_blocks(const VectorSet& vectors) {
  int32_t at_once = 0;
  int32_t together = 0;  // check_decoded_together()
  int32_t longest = 0;
  for (const PromptVectors& prompt : vectors.prompts) {
    at_once += blocks_of(prompt.ids.size() + kNumGreedy);
    together += static_cast<int32_t>(kCopies) * blocks_of(std::min(prompt.ids.size(), kDecodedTogether));
    longest = std::max(longest, blocks_of(prompt.ids.size()));
  }
  return 2 * std::max(at_once, together + longest) + 8;
}

bool is_scrambled(std::span<const int32_t> table) {
  for (size_t i = 1; i < table.size(); ++i) {
    if (table[i] != table[i - 1] + 1) {
      return true;
    }
  }
  return false;
}

class Placement {
 public:
  Placement(const GateInput& input, Model& plain, Model& scrambled, int32_t num_blocks, PhaseRecord& record)
      : input_(input), plain_(plain), scrambled_(scrambled), num_blocks_(num_blocks), record_(record) {}

  Result<void> run();

 private:
  Result<RowDigests> digests(Session& session, std::span<const int32_t> ids, std::span<const size_t> sizes,
                             bool generated) const {
    return digests_in_pieces(session, ids, sizes, generated, input_.setup.is_cancelled);
  }
  Result<RowDigests> measure(std::span<const int32_t> ids, bool generated);
  Result<void> poison_around(const Session& session) { return poison_unused(scrambled_, num_blocks_, session); }
  Result<void> check_placed(const PromptVectors& prompt);
  Result<void> check_pieces(const PromptVectors& prompt);
  Result<void> check_resumed(const PromptVectors& prompt);
  Result<void> check_batched();
  Result<void> check_decoded_together();
  void expect_equal(const PromptVectors& prompt, std::string_view what, const RowDigests& found);

  const GateInput& input_;
  Model& plain_;
  Model& scrambled_;
  int32_t num_blocks_;
  PhaseRecord& record_;
  std::vector<RowDigests> expected_;  // of each prompt: whole, alone, as a prompt
  std::vector<RowDigests> decoded_;   // of each prompt: alone, token by token, as generated
  const RowDigests* expected_of_prompt_ = nullptr;
  int64_t num_scrambled_ = 0;  // prompts whose table of at least three blocks was out of order
  int64_t num_rows_ = 0;
};

void Placement::expect_equal(const PromptVectors& prompt, std::string_view what, const RowDigests& found) {
  num_rows_ += static_cast<int64_t>(found.size());
  record_.fail_all(prompt.name, digest_differences(what, found, *expected_of_prompt_));
}

Result<RowDigests> Placement::measure(std::span<const int32_t> ids, bool generated) {
  KIPP_ASSIGN(Session session, plain_.new_session());
  return digests(session, ids, {&kWhole, 1}, generated);
}

// Whole in scrambled blocks; then, as generated tokens, one by one.
Result<void> Placement::check_placed(const PromptVectors& prompt) {
  KIPP_ASSIGN(Session session, scrambled_.new_session());
  KIPP_TRY(poison_around(session));
  KIPP_ASSIGN(const RowDigests whole, digests(session, prompt.ids, {&kWhole, 1}, false));
  expect_equal(prompt, "scrambled blocks", whole);
  if (prompt.ids.size() >= kMinTokens && is_scrambled(session.block_table())) {
    ++num_scrambled_;
  }
  constexpr size_t kOne = 1;
  session.reset();
  KIPP_TRY(poison_around(session));
  KIPP_ASSIGN(const RowDigests placed, digests(session, prompt.ids, {&kOne, 1}, true));
  KIPP_ASSIGN(Session plain, plain_.new_session());
  KIPP_ASSIGN(const RowDigests decoded, digests(plain, prompt.ids, {&kOne, 1}, true));
  num_rows_ += static_cast<int64_t>(placed.size());
  record_.fail_all(prompt.name, digest_differences("decoding in scrambled blocks", placed, decoded));
  decoded_.push_back(decoded);
  return {};
}

Result<void> Placement::check_pieces(const PromptVectors& prompt) {
  KIPP_ASSIGN(Session session, scrambled_.new_session());
  KIPP_TRY(poison_around(session));
  KIPP_ASSIGN(const RowDigests pieces, digests(session, prompt.ids, kRaggedPieces, false));
  expect_equal(prompt, "cut into pieces", pieces);
  return {};
}

// Fills a session with the prompt backwards, cuts that inside a block, and goes on with the prompt; then starts afresh.
Result<void> Placement::check_resumed(const PromptVectors& prompt) {
  const size_t kept = prompt.ids.size() / 2 + 1 < prompt.ids.size() ? prompt.ids.size() / 2 + 1 : 0;
  std::vector<int32_t> other(prompt.ids.begin(), prompt.ids.begin() + static_cast<ptrdiff_t>(kept));
  other.insert(other.end(), prompt.ids.rbegin(), prompt.ids.rend() - static_cast<ptrdiff_t>(kept));
  KIPP_ASSIGN(Session session, scrambled_.new_session());
  KIPP_TRY(poison_around(session));
  KIPP_TRY(input_.go_on());
  KIPP_TRY(session.append(other));
  KIPP_TRY(session.truncate(static_cast<int32_t>(kept)));
  KIPP_TRY(poison_around(session));
  const std::span<const int32_t> rest = std::span(prompt.ids).subspan(kept);
  KIPP_ASSIGN(RowDigests resumed, digests(session, rest, {&kWhole, 1}, false));
  const RowDigests expected_rest(expected_of_prompt_->begin() + static_cast<ptrdiff_t>(kept),
                                 expected_of_prompt_->end());
  num_rows_ += static_cast<int64_t>(resumed.size());
  record_.fail_all(prompt.name, digest_differences("truncated and resumed", resumed, expected_rest));
  session.reset();
  KIPP_TRY(poison_around(session));
  KIPP_ASSIGN(const RowDigests reused, digests(session, prompt.ids, {&kWhole, 1}, false));
  expect_equal(prompt, "reset and reused", reused);
  return {};
}

// All prompts in one step: the first half of each, then the second halves, so that spans start anywhere.
Result<void> Placement::check_batched() {
  const std::vector<PromptVectors>& prompts = input_.vectors.prompts;
  std::vector<Session> sessions;
  for (size_t i = 0; i < prompts.size(); ++i) {
    KIPP_ASSIGN(Session session, scrambled_.new_session());
    sessions.push_back(std::move(session));
  }
  KIPP_TRY(poison_around(sessions.front()));  // none of them holds anything yet
  std::vector<RowDigests> found(prompts.size());
  for (const bool second : {false, true}) {
    std::vector<Model::StepRequest> requests;
    std::vector<size_t> prompt_of;
    std::vector<int32_t> rows(input_.longest_prompt());
    std::iota(rows.begin(), rows.end(), 0);
    for (size_t i = 0; i < prompts.size(); ++i) {
      const size_t half = (prompts[i].ids.size() + 1) / 2;
      const std::span<const int32_t> ids(prompts[i].ids);
      const auto part = second ? ids.subspan(half) : ids.first(half);
      if (!part.empty()) {
        requests.push_back({&sessions[i], part, std::span(rows).first(part.size())});
        prompt_of.push_back(i);
      }
    }
    KIPP_TRY(input_.go_on());
    KIPP_ASSIGN(const auto logits, scrambled_.step_all_logits(requests));
    for (size_t request = 0; request < logits.size(); ++request) {
      for (const std::vector<float>& row : logits[request]) {
        KIPP_ASSIGN(const uint64_t digest, row_digest(row));
        found[prompt_of[request]].push_back(digest);
      }
    }
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    expected_of_prompt_ = &expected_[i];
    expect_equal(prompts[i], "batched with all other prompts", found[i]);
  }
  return {};
}

// Copies of all prompts token by token in common steps, as generated rows; the first step also takes a whole prompt,
// and towards the end one copy after the other leaves, so that every number of rows occurs.
Result<void> Placement::check_decoded_together() {
  const std::vector<PromptVectors>& prompts = input_.vectors.prompts;
  const size_t num_sequences = kCopies * prompts.size();
  std::vector<Session> sessions;
  for (size_t i = 0; i <= num_sequences; ++i) {
    KIPP_ASSIGN(Session session, scrambled_.new_session());
    sessions.push_back(std::move(session));
  }
  KIPP_TRY(poison_around(sessions.front()));  // none of them holds anything yet
  const auto longest = std::ranges::max_element(prompts, {}, [](const PromptVectors& p) { return p.ids.size(); });
  std::vector<RowDigests> found(num_sequences);
  constexpr int32_t kHeadRow = 0;
  for (size_t position = 0; position < std::min(kDecodedTogether, input_.longest_prompt()); ++position) {
    std::vector<Model::StepRequest> requests;
    std::vector<size_t> sequence_of;
    for (size_t i = 0; i < num_sequences; ++i) {
      const std::vector<int32_t>& ids = prompts[i % prompts.size()].ids;
      const size_t end = kDecodedTogether - std::min(i, kDecodedTogether - 1);
      if (position < std::min(ids.size(), end)) {
        requests.push_back({&sessions[i], std::span(ids).subspan(position, 1), {&kHeadRow, 1}, true});
        sequence_of.push_back(i);
      }
    }
    if (position == 0) requests.push_back({&sessions.back(), longest->ids, {}, false});
    KIPP_TRY(input_.go_on());
    KIPP_ASSIGN(const auto logits, scrambled_.step_all_logits(requests));
    for (size_t r = 0; r < sequence_of.size(); ++r) {
      KIPP_ASSIGN(const uint64_t digest, row_digest(logits[r].front()));
      found[sequence_of[r]].push_back(digest);
    }
  }
  for (size_t i = 0; i < num_sequences; ++i) {
    const size_t prompt = i % prompts.size();
    const auto count = static_cast<ptrdiff_t>(found[i].size());
    const RowDigests alone(decoded_[prompt].begin(), decoded_[prompt].begin() + count);
    num_rows_ += static_cast<int64_t>(found[i].size());
    record_.fail_all(prompts[prompt].name, digest_differences("decoded together with others", found[i], alone));
  }
  return {};
}

Result<void> Placement::run() {
  for (const PromptVectors& prompt : input_.vectors.prompts) {
    KIPP_ASSIGN(RowDigests whole, measure(prompt.ids, false));
    expected_.push_back(std::move(whole));
  }
  for (size_t i = 0; i < expected_.size(); ++i) {
    const PromptVectors& prompt = input_.vectors.prompts[i];
    expected_of_prompt_ = &expected_[i];
    KIPP_TRY(check_placed(prompt));
    KIPP_TRY(check_pieces(prompt));
    KIPP_TRY(check_resumed(prompt));
    input_.progress(fmt::format("placement {}: {} tokens", prompt.name, prompt.ids.size()));
  }
  KIPP_TRY(check_batched());
  KIPP_TRY(check_decoded_together());
  if (num_scrambled_ == 0) {
    record_.fail("",
                 fmt::format("no prompt of {} tokens or more had a scrambled table: nothing was shown", kMinTokens));
  }
  record_.details.set("rows_compared", Json::number(num_rows_));
  record_.details.set("prompts_in_scrambled_tables", Json::number(num_scrambled_));
  return {};
}

}  // namespace

Result<PhaseRecord> run_placement(const GateInput& input) {
  PhaseRecord record;
  const int32_t num_blocks = num_scrambled_blocks(input.vectors);
  KIPP_ASSIGN(const auto plain, input.open_model({}));
  KIPP_ASSIGN(const auto scrambled, input.open_model({.placement_seed = kPlacementSeed, .num_blocks = num_blocks}));
  Placement placement(input, *plain, *scrambled, num_blocks, record);
  if (const auto done = placement.run(); !done) {
    KIPP_TRY(input.go_on());
    record.fail("", done.error().message);  // a NaN, above all: a failure of the gate, not of the machine
    return record;
  }
  record.details.set("blocks_in_pool", Json::number(int64_t{num_blocks}));
  const Report report = scrambled->backend().report();
  check_kernels({&report, 1}, scrambled->backend().operators(), input.file.info().scheme, kUnroundedAndStateless,
                record);
  return record;
}

}  // namespace kipp::gates
