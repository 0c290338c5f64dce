// A kernel as the emulator knows it: its C++ function behind one that takes everything from a table, and what its
// source says of arguments and function constants. The files that tests/metal/emulation/signatures writes fill it in;
// they see no C++ library.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace kipp {
namespace metal_emulation {

// What a thread is given: addresses for buffers and threadgroup memory, numbers for everything else.
struct ThreadInputs {
  void* const* pointers;   // by position in the parameter list
  uint32_t (*numbers)[3];  // by position in the parameter list
};

struct ParameterEntry {
  const char* name;
  const char* attribute;
  uint32_t index;
  const char* space;
  bool is_reference;
  bool is_written;
  uint32_t dimensions;  // of a position: 1, 2 or 3
  size_t element_size, element_alignment;
};

struct ConstantEntry {
  const char* name;
  uint32_t index;
  const char* type;
  void* value;
};

struct FunctionEntry {
  const char* name;
  void (*call)(const ThreadInputs& inputs);
  const ParameterEntry* parameters;
  uint32_t num_parameters;
  const ConstantEntry* constants;
  uint32_t num_constants;
};

// Adds it to what run() finds; the entry must live as long as the program.
bool register_function(const FunctionEntry& entry);

template <typename T>
struct IsConst {
  enum : bool { kValue = false };
};
template <typename T>
struct IsConst<const T> {
  enum : bool { kValue = true };
};

// What a parameter's type says: Element is what a number, a vector or a pointer is of.
template <typename Element, uint32_t dimensions>
struct Number {
  enum : size_t { kSize = sizeof(Element), kAlignment = alignof(Element) };
  enum : uint32_t { kDimensions = dimensions };
  enum : bool { kIsReference = false, kIsWritten = false };
};
template <typename Element, bool is_reference>
struct Place {
  enum : size_t { kSize = sizeof(Element), kAlignment = alignof(Element) };
  enum : uint32_t { kDimensions = 1 };
  enum : bool { kIsReference = is_reference, kIsWritten = !IsConst<Element>::kValue };
};

// And how it comes out of the table.
template <typename T>
struct Parameter : Number<T, 1> {  // uint, ushort
  static T get(const ThreadInputs& inputs, uint32_t i) { return T(inputs.numbers[i][0]); }
};
template <template <typename, int> class Vector, typename T>
struct Parameter<Vector<T, 2>> : Number<T, 2> {
  static Vector<T, 2> get(const ThreadInputs& inputs, uint32_t i) {
    return Vector<T, 2>(T(inputs.numbers[i][0]), T(inputs.numbers[i][1]));
  }
};
template <template <typename, int> class Vector, typename T>
struct Parameter<Vector<T, 3>> : Number<T, 3> {
  static Vector<T, 3> get(const ThreadInputs& inputs, uint32_t i) {
    return Vector<T, 3>(T(inputs.numbers[i][0]), T(inputs.numbers[i][1]), T(inputs.numbers[i][2]));
  }
};
template <typename T>
struct Parameter<T*> : Place<T, false> {
  static T* get(const ThreadInputs& inputs, uint32_t i) { return static_cast<T*>(inputs.pointers[i]); }
};
template <typename T>
struct Parameter<T&> : Place<T, true> {
  static T& get(const ThreadInputs& inputs, uint32_t i) { return *static_cast<T*>(inputs.pointers[i]); }
};

template <uint32_t... I>
struct Indices {};
template <uint32_t N, uint32_t... I>
struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <uint32_t... I>
struct MakeIndices<0, I...> {
  using Type = Indices<I...>;
};

template <typename Function>
struct Signature;
template <typename... T>
struct Signature<void (*)(T...)> {
  enum : uint32_t { kCount = sizeof...(T) };
  using All = typename MakeIndices<sizeof...(T)>::Type;

  template <uint32_t... I>
  static void call(void (*function)(T...), const ThreadInputs& inputs, Indices<I...>) {
    function(Parameter<T>::get(inputs, I)...);
  }
  static void call(void (*function)(T...), const ThreadInputs& inputs) { call(function, inputs, All()); }

  // Completes what the source's text says with what its types are.
  static void complete(ParameterEntry* entries) {
    const ParameterEntry types[] = {{nullptr, nullptr, 0, nullptr, bool(Parameter<T>::kIsReference),
                                     bool(Parameter<T>::kIsWritten), uint32_t(Parameter<T>::kDimensions),
                                     size_t(Parameter<T>::kSize), size_t(Parameter<T>::kAlignment)}...};
    for (uint32_t i = 0; i < kCount; ++i) {
      entries[i].is_reference = types[i].is_reference;
      entries[i].is_written = types[i].is_written && entries[i].space[0] != 'c';  // constant is never written
      entries[i].dimensions = types[i].dimensions;
      entries[i].element_size = types[i].element_size;
      entries[i].element_alignment = types[i].element_alignment;
    }
  }
};

}  // namespace metal_emulation
}  // namespace kipp
