// A kernel with function constants: tests/metal/emulation/bindings_test.cc.
#include <metal_stdlib>

using namespace metal;

constant uint kFactor [[function_constant(0)]];
constant bool kNegates [[function_constant(3)]];

struct ScaleArgs {
  uint count;
  float offset;
};

kernel void kipp_case_scale(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                            constant ScaleArgs& args [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  if (i >= args.count) return;
  const float value = x[i] * float(kFactor) + args.offset;
  out[i] = kNegates ? -value : value;
}
