// Every kernel class that a backend has must have run in a gate: a gate that misses one proves nothing about it.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "gates/gate.h"

namespace kipp::gates {

// A class that a gate cannot reach, by the name that the report gives it.
using Unreachable = std::span<const std::string_view>;

// The test switch round_kv = false keeps K and V in FP32; only Phase 1 runs a model with it.
inline constexpr std::array<std::string_view, 2> kUnroundedKv = {"attention_f32", "kv_write_f32"};
// And what a model opened with it cannot reach.
inline constexpr std::array<std::string_view, 2> kRoundedKv = {"attention_bf16", "kv_write_bf16"};
// Placement compares cached paths with one another, and so leaves out stateless evaluation (Phase 1 and 2) too.
inline constexpr std::array<std::string_view, 4> kUnroundedAndStateless = {"attention_f32", "kv_write_f32",
                                                                           "stateless_attention", "sample"};
// Nor does Phase 2 draw, decode several sequences together or evaluate prompts step by step; and where the head alone
// is BF16, its kernel does the norm of one row, too.
inline constexpr std::array<std::string_view, 18> kNotInPhase2 = {
    "attention_f32",
    "kv_write_f32",
    "sample",
    "attention_generated",
    "query_key_value",     // several sequences, prompts: one that decodes has both in one kernel
    "matmul_stream_bf16",  // of BF16 artifacts it runs all the same, and the other gates insist on it
    "matmul_stream_wide_bf16",
    "matmul_stream_wide_q8_0",
    "matmul_stream_wide_affine4_gs32",
    "matmul_cluster_bf16",
    "matmul_cluster_q8_0",
    "matmul_cluster_affine4_gs32",
    "matmul_many_bf16",
    "matmul_many_q8_0",
    "matmul_many_affine4_gs32",
    "swiglu_partials",
    "sum_partials",
    "attention_prompt"};

// Whether an artifact of `scheme` can reach a class of this name: a class that reads weights of a quantised scheme is
// named after it ("matmul_q8_0"), and artifacts of other schemes hold no such weights. All hold BF16 (the head).
// Classes of attention and kv_write are named after the pool's elements.
bool is_reachable(std::string_view kernel, QuantScheme scheme);

// Records how often each class ran, over all reports (of the models of one gate, on one backend). Fails for a class
// that never ran and is neither `unreachable` nor of another scheme than the artifact's, for one of another scheme that
// ran, and for an operator of the table that no class is named after ("matmul" is "matmul" or "matmul_…").
void check_kernels(std::span<const Report> reports, const OperatorTable& operators, QuantScheme scheme,
                   Unreachable unreachable, PhaseRecord& record);

}  // namespace kipp::gates
