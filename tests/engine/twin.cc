// See twin.h.
#include "engine/twin.h"

#include <cstdlib>
#include <cstring>
#include <random>

#include "kipp_checkpoints.h"

namespace kipp {

// The tests run on the oracle, and once more on the backend that KIPP_TEST_BACKEND names.
ModelOptions twin_options() {
  const char* backend = std::getenv("KIPP_TEST_BACKEND");
  return {
      .backend = backend == nullptr ? "oracle" : backend, .num_threads = 2, .context = 512, .allow_synthetic = true};
}

std::unique_ptr<Model> open_twin(const ModelOptions& options) {
  auto model = Model::open(KIPP_TWIN_ARTIFACT, options);
  if (!model) {
    ADD_FAILURE() << model.error().message;
    return nullptr;
  }
  return *std::move(model);
}

std::vector<int32_t> draw_tokens(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int32_t> id(0, kNumTokens - 1);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) {
    token = id(random);
  }
  return tokens;
}

SamplingParams with_temperature(float temperature) {
  SamplingParams params;
  params.temperature = temperature;
  return params;
}

SampleRequest request_of(const SamplingParams& params, int32_t position, uint64_t seed) {
  SampleRequest request;
  request.params = &params;
  request.position = position;
  request.seed = seed;
  return request;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::vector<Logits> fresh_logits(std::span<const int32_t> tokens) {
  const auto model = open_twin();
  if (model == nullptr) {
    return {};
  }
  auto session = model->new_session();
  auto logits = session->append_all_logits(tokens);
  if (!logits) {
    ADD_FAILURE() << logits.error().message;
    return {};
  }
  return *std::move(logits);
}

}  // namespace kipp
