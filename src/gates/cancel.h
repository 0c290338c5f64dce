// How a person stops gates that may run for hours: a question asked between their steps.
#pragma once

#include <functional>

#include "kipp/error.h"

namespace kipp::gates {

// True, and true from then on: stop. An empty one never stops anything.
using CancelCheck = std::function<bool()>;

// Asked before each step of the backend: an error, which ends the phase, once the work is cancelled. run_gates tells it
// from a real one by asking the check itself.
inline Result<void> go_on(const CancelCheck& is_cancelled) {
  if (is_cancelled && is_cancelled()) {
    return make_error(ErrorCode::kInternal, "cancelled");
  }
  return {};
}

}  // namespace kipp::gates
