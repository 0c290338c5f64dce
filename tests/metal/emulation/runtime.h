// What the MSL headers call: barriers and exchanges between lanes. Declared without any emulator type, since kernels'
// translation units are instrumented and must not touch the emulator's own memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kipp::metal_emulation::runtime {

enum class Scope : uint8_t { kThreadgroup, kSimdgroup };

// flags: bit 0 device memory, bit 1 threadgroup memory.
void barrier(Scope scope, uint32_t flags, const char* file, int line);

enum class Reduction : uint8_t { kSum, kMax, kMin, kProduct, kAnd, kOr, kPrefixExclusiveSum, kPrefixInclusiveSum };
float reduce(Reduction reduction, float value, const char* file, int line);
int32_t reduce(Reduction reduction, int32_t value, const char* file, int line);
uint32_t reduce(Reduction reduction, uint32_t value, const char* file, int line);

enum class Shuffle : uint8_t { kLane, kXor, kDown, kUp };
// Replaces `value`'s `size` (at most 16) bytes by those of another lane. What no lane of the simdgroup gives is poison.
void shuffle(Shuffle shuffle, void* value, size_t size, uint32_t operand, const char* file, int line);

// d = a · b + c of 8×8 matrices, two elements a lane: row lane / 4, columns lane % 4 · 2 and the next.
void multiply_accumulate(float* d, const float* a, const float* b, const float* c, const char* file, int line);
// All lanes meet, as they must where a simdgroup loads or stores a matrix.
void meet(const char* what, const char* file, int line);
uint32_t lane();

[[noreturn]] void fail(const char* message);

}  // namespace kipp::metal_emulation::runtime
