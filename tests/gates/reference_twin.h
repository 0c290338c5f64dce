// The small twin with reference vectors made by Kipp itself: the stateless pass with K and V in FP32. They serve to
// show that a gate passes on what is right and fails on what is not; evidence about Kipp are only those of
// tests/vectors.
#pragma once

#include <filesystem>

#include "gates/gate.h"

namespace kipp::gates {

// Two prompts: "hi", 3 tokens with a text, and "long", 66 tokens (three blocks). Made once a process, copied each time.
GateInput twin_input();

// A copy of the twin's artifact in `folder` (70 MB) in which a part of one matrix has other values.
std::filesystem::path tampered_artifact(const std::filesystem::path& folder, const WeightView& weight);

}  // namespace kipp::gates
