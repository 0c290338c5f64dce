// Keywords and scalar types of the Metal Shading Language as C++. Address spaces vanish here: that every pointer has
// the right one is checked by another compilation (tests/metal/language), where an access leads is checked at run time.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Metal 3.1 is what the bridge compiles kernels as. 1.5.2 Preprocessor Definitions.
#define __METAL_VERSION__ 310

#define kernel static  // 5.1.3 Compute Functions (Kernels)
#define device         // 4.1 Device Address Space
#define constant       // 4.2 Constant Address Space
#define thread         // 4.3 Thread Address Space
#define threadgroup    // 4.4 Threadgroup Address Space

// 2.1 Scalar Data Types.
using uchar = uint8_t;
using ushort = uint16_t;
using uint = uint32_t;
using ulong = uint64_t;
