// The slice of the Metal standard library that kernels use, as C++. Sections are those of Apple's Metal Shading Language
// Specification, version 3.2, by name. What is not here does not compile, though it may be MSL: add it with its section.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>

#include "metal/emulation/registry.h"
#include "metal/emulation/runtime.h"

#define __METAL_VERSION__ 320  // "Preprocessor Directives": 3.2

#include "metal/emulation/msl/scalar.h"
#include "metal/emulation/msl/vector.h"
// After the types that they take:
#include "metal/emulation/msl/math.h"
#include "metal/emulation/msl/simd.h"
#include "metal/emulation/msl/simdgroup_matrix.h"
// From here on words mean what they mean in MSL; msl/words_end.h ends it.
#include "metal/emulation/msl/words.h"
