// The small synthetic twin that engine tests run on: two layers of the demo's shape.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kipp/engine.h"

namespace kipp {

using Logits = std::vector<float>;

ModelOptions twin_options();
// Fails the test and returns null if the twin cannot be opened.
std::unique_ptr<Model> open_twin(const ModelOptions& options = twin_options());

// Token ids drawn from a seed.
std::vector<int32_t> draw_tokens(size_t count, uint64_t seed);

SamplingParams with_temperature(float temperature);
SampleRequest request_of(const SamplingParams& params, int32_t position = 0, uint64_t seed = 0);

// Bit for bit, so that NaN equals itself and -0 is not 0.
bool same_bits(std::span<const float> a, std::span<const float> b);

// Logits of every row of one prompt on a fresh session of a fresh model: what every other way must equal.
std::vector<Logits> fresh_logits(std::span<const int32_t> tokens);

}  // namespace kipp
