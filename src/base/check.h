// KIPP_CHECK: a broken invariant of Kipp itself (never bad input) ends the process with the place and the condition.
#pragma once

#include <cstdio>
#include <cstdlib>

#define KIPP_CHECK(condition)                                                            \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)
