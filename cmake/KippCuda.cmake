# Whether the CUDA backend is built, and kipp_add_cuda_library / kipp_add_cuda_test. KIPP_CUDA: AUTO builds it where nvcc is
# found, ON insists, OFF leaves it out. The architectures are CMAKE_CUDA_ARCHITECTURES' (90a unless it says otherwise), or
# those of CUDA_GENERIC_ARCH_FLAGS, which CMake 3.25 need not know (100f).
# -fmad=false: a product and a sum are rounded where the source says so; kernels ask for fused multiply-adds by name.
set(KIPP_CUDA "AUTO" CACHE STRING "Build the CUDA backend: AUTO, ON or OFF")
set_property(CACHE KIPP_CUDA PROPERTY STRINGS AUTO ON OFF)
set(CUDA_GENERIC_ARCH_FLAGS "" CACHE STRING "nvcc's flags that choose architectures, instead of CMAKE_CUDA_ARCHITECTURES")
set(KIPP_HAS_CUDA OFF)
if(NOT KIPP_CUDA STREQUAL "OFF" AND NOT CMAKE_CROSSCOMPILING AND NOT KIPP_SANITIZE AND NOT KIPP_COVERAGE
   AND NOT KIPP_SEEDED_FAULTS)
  if(CUDA_GENERIC_ARCH_FLAGS)
    set(CMAKE_CUDA_ARCHITECTURES OFF)
  elseif(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90a-real)
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(KIPP_HAS_CUDA ON)
  elseif(KIPP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "KIPP_CUDA is ON, but no CUDA compiler was found (set CMAKE_CUDA_COMPILER or PATH)")
  endif()
endif()
if(KIPP_HAS_CUDA)
  message(STATUS "CUDA backend: ON, architectures: ${CMAKE_CUDA_ARCHITECTURES} ${CUDA_GENERIC_ARCH_FLAGS}")
else()
  message(STATUS "CUDA backend: OFF")
endif()

# CMake 3.25 knows no C++20 for CUDA. Without this it would append -std=c++17, because C++ has extensions off.
set(CMAKE_CUDA_EXTENSIONS ON)
add_library(kipp_cuda_options INTERFACE)
target_compile_options(kipp_cuda_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;-fmad=false;--expt-relaxed-constexpr;-Xcompiler=-ffp-contract=off,-Wall,-Wextra>")
if(CUDA_GENERIC_ARCH_FLAGS)
  target_compile_options(kipp_cuda_options INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:${CUDA_GENERIC_ARCH_FLAGS}>")
endif()
if(KIPP_WARNINGS_AS_ERRORS)
  target_compile_options(kipp_cuda_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
endif()
target_include_directories(kipp_cuda_options INTERFACE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
target_include_directories(kipp_cuda_options SYSTEM INTERFACE "${KIPP_EXPECTED_INCLUDE_DIR}")

# kipp_add_cuda_library(name SOURCES a.cu … DEPS …): position-independent, for the backend's shared object.
function(kipp_add_cuda_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(${name} PUBLIC kipp_cuda_options ${ARG_DEPS} CUDA::cudart_static)
endfunction()

# kipp_add_cuda_test(name SOURCES a_test.cc … DEPS …): its cases skip themselves where there is no GPU.
function(kipp_add_cuda_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${name} PRIVATE kipp_options ${ARG_DEPS} CUDA::cudart_static GTest::gmock GTest::gtest
                                        GTest::gtest_main)
  kipp_compile_quickly(${name})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 LABELS cuda)
endfunction()
