// Greedy generation without stop tokens, as the reference tool does it.
#include "gates/greedy.h"

namespace kipp::gates {

Result<std::vector<int32_t>> greedy_ids(Session& session, int32_t count, const CancelCheck& is_cancelled) {
  SamplingParams greedy;
  greedy.temperature = 0.0F;
  SampleRequest request;
  request.params = &greedy;
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < count; ++i) {
    if (i > 0) {
      KIPP_TRY(go_on(is_cancelled));
      KIPP_TRY(session.append({&ids.back(), 1}, true));
    }
    KIPP_ASSIGN(const SampledToken token, session.sample(request));
    ids.push_back(token.id);
  }
  return ids;
}

}  // namespace kipp::gates
