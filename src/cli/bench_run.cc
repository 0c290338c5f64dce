// Only the steps themselves are timed: sessions are prepared before and cut back after each repetition.
#include "cli/bench_run.h"

#include <chrono>
#include <memory>
#include <utility>

#include "gguf/model_file.h"

namespace kipp::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The sequences of one case; run() leaves them as they were.
class CaseRunner {
 public:
  static Result<CaseRunner> create(Model& model, const BenchCase& wanted, const BenchPlan& plan) {
    CaseRunner runner(model, wanted, plan.draw);
    for (int32_t i = 0; i < wanted.batch; ++i) {
      KIPP_ASSIGN(Session session, model.new_session());
      runner.tokens_.push_back(
          synthetic_tokens(plan.seed, static_cast<uint64_t>(i), wanted.positions(), model.info().num_tokens()));
      if (wanted.depth > 0) {
        KIPP_TRY(session.append(runner.held(i)));
      }
      runner.sessions_.push_back(std::move(session));
    }
    return runner;
  }

  // Seconds of all steps.
  Result<double> run() {
    const auto start = Clock::now();
    KIPP_TRY(case_.decode ? decode() : sessions_.front().append(fresh(0)));
    const double seconds = seconds_since(start);
    for (Session& session : sessions_) {
      KIPP_TRY(session.truncate(case_.depth));
    }
    return seconds;
  }

 private:
  CaseRunner(Model& model, const BenchCase& wanted, bool draw) : model_(&model), case_(wanted), draw_(draw) {}

  std::span<const int32_t> held(int32_t sequence) const {
    return std::span(tokens_[static_cast<size_t>(sequence)]).first(static_cast<size_t>(case_.depth));
  }
  std::span<const int32_t> fresh(int32_t sequence) const {
    return std::span(tokens_[static_cast<size_t>(sequence)]).subspan(static_cast<size_t>(case_.depth));
  }

  Result<void> decode() {
    constexpr int32_t kHeadRow = 0;
    std::vector<Model::StepRequest> requests(sessions_.size());
    for (size_t step = 0; step < static_cast<size_t>(case_.tokens); ++step) {
      for (size_t i = 0; i < sessions_.size(); ++i) {
        requests[i] = {.session = &sessions_[i],
                       .tokens = fresh(static_cast<int32_t>(i)).subspan(step, 1),
                       .head_rows = {&kHeadRow, 1},
                       .generated = true};
      }
      KIPP_TRY(model_->step(requests));
      if (draw_) KIPP_TRY(draw());
    }
    return {};
  }

  // The ids are not fed: which tokens are evaluated shall not depend on the weights.
  Result<void> draw() {
    const SamplingParams greedy{.temperature = 0.0F};
    for (const Session& session : sessions_) {
      KIPP_TRY(session.sample({.params = &greedy}));
    }
    return {};
  }

  Model* model_;
  BenchCase case_;
  bool draw_;
  std::vector<Session> sessions_;
  std::vector<std::vector<int32_t>> tokens_;  // [batch][depth + tokens]
};

}  // namespace

Result<CaseResult> measure_case(Model& model, const LimitProbe& probe, const BenchCase& wanted, const BenchPlan& plan,
                                const std::function<Result<void>()>& after_warm_up, const BenchProgress& progress) {
  CaseResult result{.measured = wanted, .seconds = {}, .probes = {}};
  KIPP_ASSIGN(CaseRunner runner, CaseRunner::create(model, wanted, plan));
  KIPP_TRY(runner.run());
  KIPP_TRY(after_warm_up());
  KIPP_ASSIGN(LimitRates before, probe.measure());
  result.probes.push_back(std::move(before));
  for (int32_t i = 0; i < plan.repetitions && progress(wanted); ++i) {
    KIPP_ASSIGN(const double seconds, runner.run());
    KIPP_ASSIGN(LimitRates after, probe.measure());
    result.seconds.push_back(seconds);
    result.probes.push_back(std::move(after));
  }
  return result;
}

Result<StartTimes> measure_start(const std::function<Result<std::unique_ptr<Model>>()>& open, const StartRuns& runs,
                                 const std::function<bool()>& go_on) {
  constexpr uint64_t kStream = 1U << 20;
  StartTimes times;
  for (int32_t i = 0; i < runs.uncounted + runs.counted && go_on(); ++i) {
    const auto start = Clock::now();
    KIPP_ASSIGN(const auto model, open());
    const double open_ms = seconds_since(start) * 1e3;
    KIPP_ASSIGN(Session session, model->new_session());
    KIPP_TRY(session.append(synthetic_tokens(runs.seed, kStream, kStartTokens, model->info().num_tokens())));
    const double first_token_ms = seconds_since(start) * 1e3;
    if (i >= runs.uncounted) {
      times.open_ms.values.push_back(open_ms);
      times.first_token_ms.values.push_back(first_token_ms);
    }
  }
  return times;
}

}  // namespace kipp::cli
