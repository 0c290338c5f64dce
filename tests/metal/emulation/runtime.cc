// Barriers, reductions, shuffles and matrix products: each lane gives its operands, waits for the others, and takes.
#include "metal/emulation/runtime.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "metal/emulation/group.h"

namespace kipp::metal_emulation::runtime {
namespace {

Wait exchange_wait(const char* what, const char* file, int line) {
  return {.kind = Wait::Kind::kExchange, .what = what, .file = file, .line = line};
}

template <typename T>
T operand_of(const Exchange& exchange, uint32_t lane) {
  T value;
  std::memcpy(&value, exchange.operands[lane].data(), sizeof value);
  return value;
}

template <typename T>
T combine(Reduction reduction, T a, T b) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kPrefixExclusiveSum:
    case Reduction::kPrefixInclusiveSum: return a + b;
    case Reduction::kProduct: return a * b;
    case Reduction::kMax: return b > a ? b : a;
    case Reduction::kMin: return b < a ? b : a;
    default: break;
  }
  if constexpr (!std::is_floating_point_v<T>) return reduction == Reduction::kAnd ? a & b : a | b;
  return a;
}

// Reductions are a tree over halves of the simdgroup: one fixed order, though MSL names none.
template <typename T>
T tree(const Exchange& exchange, Reduction reduction, uint32_t num_lanes) {
  T values[kSimdLanes];
  for (uint32_t lane = 0; lane < num_lanes; ++lane) values[lane] = operand_of<T>(exchange, lane);
  for (uint32_t half = kSimdLanes / 2; half > 0; half /= 2) {
    for (uint32_t lane = 0; lane < half && lane + half < num_lanes; ++lane) {
      values[lane] = combine(reduction, values[lane], values[lane + half]);
    }
    if (half < num_lanes) num_lanes = half;
  }
  return values[0];
}

template <typename T>
T prefix(const Exchange& exchange, Reduction reduction, uint32_t lane) {
  T sum = 0;
  for (uint32_t i = 0; i < lane; ++i) sum += operand_of<T>(exchange, i);
  return reduction == Reduction::kPrefixExclusiveSum ? sum : static_cast<T>(sum + operand_of<T>(exchange, lane));
}

template <typename T>
T reduce_value(Reduction reduction, T value, const char* file, int line) {
  Exchange& exchange = group().exchange(&value, sizeof value, exchange_wait("a simd reduction", file, line));
  if (reduction == Reduction::kPrefixExclusiveSum || reduction == Reduction::kPrefixInclusiveSum) {
    return prefix<T>(exchange, reduction, lane());
  }
  if (!exchange.computed) {
    const T result = tree<T>(exchange, reduction, group().lanes_of_current());
    std::memcpy(exchange.product.data(), &result, sizeof result);
    exchange.computed = true;
  }
  std::memcpy(&value, exchange.product.data(), sizeof value);
  return value;
}

}  // namespace

uint32_t lane() {
  return group().current_index() % kSimdLanes;
}

void barrier(Scope scope, uint32_t flags, const char* file, int line) {
  group().wait({.kind = Wait::Kind::kBarrier,
                .what = scope == Scope::kThreadgroup ? "threadgroup_barrier" : "simdgroup_barrier",
                .file = file,
                .line = line,
                .flags = flags});
}

float reduce(Reduction reduction, float value, const char* file, int line) {
  return reduce_value(reduction, value, file, line);
}
int32_t reduce(Reduction reduction, int32_t value, const char* file, int line) {
  return reduce_value(reduction, value, file, line);
}
uint32_t reduce(Reduction reduction, uint32_t value, const char* file, int line) {
  return reduce_value(reduction, value, file, line);
}

void shuffle(Shuffle shuffle, void* value, size_t size, uint32_t operand, const char* file, int line) {
  Exchange& exchange = group().exchange(value, size, exchange_wait("a simd shuffle", file, line));
  uint32_t from = operand;
  if (shuffle == Shuffle::kXor) from = lane() ^ operand;
  if (shuffle == Shuffle::kDown) from = lane() + operand;
  if (shuffle == Shuffle::kUp) from = lane() - operand;
  if (from < group().lanes_of_current()) {
    std::memcpy(value, exchange.operands[from].data(), size);
  } else {
    std::memset(value, 0xFF, size);  // undefined in MSL
  }
}

void multiply_accumulate(float* d, const float* a, const float* b, const float* c, const char* file, int line) {
  const float operands[6] = {a[0], a[1], b[0], b[1], c[0], c[1]};
  Exchange& exchange = group().exchange(operands, sizeof operands, exchange_wait("a simdgroup product", file, line));
  if (!exchange.computed) {
    float all[3][64];
    for (uint32_t lane = 0; lane < kSimdLanes; ++lane) {
      float pairs[6];
      std::memcpy(pairs, exchange.operands[lane].data(), sizeof pairs);
      for (uint32_t i = 0; i < 6; ++i) all[i / 2][lane * 2 + i % 2] = pairs[i];
    }
    for (uint32_t row = 0; row < 8; ++row) {
      for (uint32_t column = 0; column < 8; ++column) {
        float sum = all[2][row * 8 + column];
        for (uint32_t k = 0; k < 8; ++k) sum = std::fma(all[0][row * 8 + k], all[1][k * 8 + column], sum);
        exchange.product[row * 8 + column] = sum;
      }
    }
    exchange.computed = true;
  }
  d[0] = exchange.product[lane() * 2];
  d[1] = exchange.product[lane() * 2 + 1];
}

void meet(const char* what, const char* file, int line) {
  const uint32_t nothing = 0;
  group().exchange(&nothing, sizeof nothing, exchange_wait(what, file, line));
}

void fail(const char* message) {
  group().record(message);
  group().abandon();
}

}  // namespace kipp::metal_emulation::runtime
