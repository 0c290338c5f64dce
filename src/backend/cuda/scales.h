// Fixed powers of two between activations and their FP16 forms. FP16 has 11 significant bits, three more than BF16, but
// a range of only 2^-24 to 2^16: the scales put the largest value that is plausible for a dense Qwen3 below its end.
// What is larger becomes infinite and comes back as a row that is not finite, never as a wrong number.
#pragma once

namespace kipp::cuda {

inline constexpr float kAttentionScale = 0x1p-2F;  // of attention's output: up to 2^18
inline constexpr float kSwigluScale = 0x1p-5F;     // of the gated activation: up to 2^21

}  // namespace kipp::cuda
