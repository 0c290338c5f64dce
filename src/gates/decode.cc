// The two sides of Phase 2.
#include "gates/decode.h"

#include "backend/backend.h"

namespace kipp::gates {

Result<std::vector<std::vector<float>>> stateless_rows(Model& model, std::span<const int32_t> ids) {
  std::vector<std::vector<float>> rows;
  rows.reserve(ids.size());
  StatelessObserver observer;
  observer.on_logits = [&rows](int32_t /*row*/, std::span<const float> logits) {
    rows.emplace_back(logits.begin(), logits.end());
  };
  KIPP_TRY(model.backend().evaluate_stateless(ids, observer));
  if (rows.size() != ids.size()) {
    return make_error(ErrorCode::kInternal, "stateless evaluation did not give one row of logits for each token");
  }
  return rows;
}

Result<Comparison> compare_decode(Session& session, std::span<const int32_t> ids,
                                  std::span<const std::vector<float>> rows, const NearTieRule& rule,
                                  const CancelCheck& is_cancelled) {
  Comparison comparison;
  for (auto position = static_cast<size_t>(session.length()); position < ids.size(); ++position) {
    KIPP_TRY(go_on(is_cancelled));
    KIPP_TRY(session.append(ids.subspan(position, 1), true));
    comparison.add(static_cast<int64_t>(position),
                   compare_rows(session.logits(), std::span<const float>(rows[position]), rule));
  }
  return comparison;
}

}  // namespace kipp::gates
