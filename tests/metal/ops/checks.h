// One check an operator of the Metal backend: its kernels, emulated, against the oracle or double precision. The same
// functions show that the kernels are right (operators_test.cc) and that they notice what is wrong
// (seeded_faults_test.cc).
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "metal/dispatching.h"

namespace kipp::metal_emulation {

// What a check found; the first failure counts. digest: of all bits that the kernels wrote.
class Check {
 public:
  // prefix: of the functions' names in the emulator; nothing but for copies with a fault.
  explicit Check(std::string prefix) : prefix_(std::move(prefix)) {}

  // False, and a failure, if the emulator refuses it or a detector finds something.
  bool run(Dispatch dispatch);
  void fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }
  template <typename T>
  void note(const std::vector<T>& written) {
    for (const T& value : written) {
      uint64_t bits = 0;
      std::memcpy(&bits, &value, sizeof(T) < 8 ? sizeof(T) : 8);
      digest_ = (digest_ ^ bits) * 0x100000001B3U;
    }
  }
  bool has_failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }
  uint64_t digest() const { return digest_; }

 private:
  std::string prefix_, failure_;
  uint64_t digest_ = 0xCBF29CE484222325U;
};

void check_embedding(Check& check);
void check_rms_norm(Check& check);
void check_rope(Check& check);
void check_kv_write(Check& check);
void check_swiglu(Check& check);
void check_residual_add(Check& check);
void check_argmax(Check& check);
void check_geometry(Check& check);
void check_matvec(Check& check);
void check_matmul(Check& check);
void check_attention_decode(Check& check);
void check_attention_prompt(Check& check);
void check_attention_stateless(Check& check);

struct NamedCheck {
  const char* name;
  void (*function)(Check& check);
};
inline constexpr NamedCheck kChecks[] = {
    {"embedding", check_embedding},
    {"rms_norm", check_rms_norm},
    {"rope", check_rope},
    {"kv_write", check_kv_write},
    {"swiglu", check_swiglu},
    {"residual_add", check_residual_add},
    {"argmax", check_argmax},
    {"geometry", check_geometry},
    {"matvec", check_matvec},
    {"matmul", check_matmul},
    {"attention_decode", check_attention_decode},
    {"attention_prompt", check_attention_prompt},
    {"attention_stateless", check_attention_stateless},
};

}  // namespace kipp::metal_emulation
