// The kernels that are compiled in: make_bindings.py writes a registration of each, from the signature that it reads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "metal/emulation/dispatch.h"

namespace kipp::metal_emulation {

// A value of the grid, in whatever type the kernel declares it.
struct GridValue {
  std::array<uint32_t, 3> xyz = {};

  template <typename T>
  operator T() const {  // NOLINT(google-explicit-constructor)
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(xyz[0]);
    } else if constexpr (sizeof(T) == 2 * sizeof(T::x)) {
      return T(static_cast<decltype(T::x)>(xyz[0]), static_cast<decltype(T::x)>(xyz[1]));
    } else {
      return T(static_cast<decltype(T::x)>(xyz[0]), static_cast<decltype(T::x)>(xyz[1]),
               static_cast<decltype(T::x)>(xyz[2]));
    }
  }
};

// A thread's inputs. The names of the grid's values are MSL's attributes.
struct Inputs {
  std::array<std::byte*, 32> buffers = {};
  GridValue thread_position_in_grid, threads_per_grid;
  GridValue thread_position_in_threadgroup, threads_per_threadgroup, thread_index_in_threadgroup;
  GridValue threadgroup_position_in_grid, threadgroups_per_grid;
  GridValue simdgroup_index_in_threadgroup, simdgroups_per_threadgroup;
  GridValue thread_index_in_simdgroup, threads_per_simdgroup;

  struct Pointer {
    std::byte* data;
    template <typename T>
    operator T*() const {  // NOLINT(google-explicit-constructor)
      return reinterpret_cast<T*>(data);
    }
  };
  struct Reference {
    std::byte* data;
    template <typename T>
    operator T&() const {  // NOLINT(google-explicit-constructor)
      return *reinterpret_cast<T*>(data);
    }
  };
  Pointer pointer(size_t index) const { return {buffers[index]}; }
  Reference reference(size_t index) const { return {buffers[index]}; }
};

struct ConstantEntry {
  ConstantFacts facts;
  bool (*set)(const Constant& value);  // false: another type
};

struct FunctionEntry {
  std::string name;      // of the entry point
  std::string cxx_name;  // as the linker's symbols demangle, for its threadgroup variables
  uint32_t max_threads;
  std::vector<ArgumentFacts> arguments;
  std::vector<ConstantEntry> constants;
  void (*call)(const Inputs& inputs);
};

std::vector<FunctionEntry>& registry();

struct Registration {
  explicit Registration(FunctionEntry entry) { registry().push_back(std::move(entry)); }
};

// Size and alignment of what parameter `P` points or refers to.
template <typename P>
ArgumentFacts argument_facts(std::string name, uint32_t index, bool writable) {
  using Element = std::remove_pointer_t<std::remove_reference_t<P>>;
  return {.name = std::move(name),
          .index = index,
          .size = sizeof(Element),
          .alignment = alignof(Element),
          .writable = writable,
          .reference = std::is_reference_v<P>};
}

template <size_t index, typename... P>
auto parameter_of(void (*)(P...)) -> std::tuple_element_t<index, std::tuple<P...>>;

template <typename T>
bool set_constant(T& variable, const Constant& value) {
  const T* given = std::get_if<T>(&value.value);
  if (given != nullptr) variable = *given;
  return given != nullptr;
}

}  // namespace kipp::metal_emulation
