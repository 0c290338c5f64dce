// What C++ has and Metal has not, as errors from here on. Metal Shading Language Specification: "Restrictions" of the
// chapter on Metal and C++14; 2.1 Scalar Data Types has no double. What no compiler flag and no poisoned word can
// refuse (derived classes, lambda expressions, threadgroup variables) the reader of signatures refuses:
// signatures/language.h.
#pragma once

#pragma GCC poison double virtual goto register thread_local noexcept dynamic_cast typeid try catch throw new delete
