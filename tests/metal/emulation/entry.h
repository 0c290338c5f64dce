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

// How a parameter of each kind comes out of the table, and what its type says.
template <typename T>
struct Parameter {  // a number: uint, ushort
  static T get(const ThreadInputs& inputs, uint32_t i) { return T(inputs.numbers[i][0]); }
  enum : size_t { kSize = sizeof(T), kAlignment = alignof(T) };
  enum : uint32_t { kDimensions = 1 };
  enum : bool { kIsReference = false, kIsWritten = false, kIsPointer = false };
};
template <template <typename, int> class Vector, typename T>
struct Parameter<Vector<T, 2>> {
  static Vector<T, 2> get(const ThreadInputs& inputs, uint32_t i) {
    return Vector<T, 2>(T(inputs.numbers[i][0]), T(inputs.numbers[i][1]));
  }
  enum : size_t { kSize = sizeof(T), kAlignment = alignof(T) };
  enum : uint32_t { kDimensions = 2 };
  enum : bool { kIsReference = false, kIsWritten = false, kIsPointer = false };
};
template <template <typename, int> class Vector, typename T>
struct Parameter<Vector<T, 3>> {
  static Vector<T, 3> get(const ThreadInputs& inputs, uint32_t i) {
    return Vector<T, 3>(T(inputs.numbers[i][0]), T(inputs.numbers[i][1]), T(inputs.numbers[i][2]));
  }
  enum : size_t { kSize = sizeof(T), kAlignment = alignof(T) };
  enum : uint32_t { kDimensions = 3 };
  enum : bool { kIsReference = false, kIsWritten = false, kIsPointer = false };
};
template <typename T>
struct IsConst {
  enum : bool { kValue = false };
};
template <typename T>
struct IsConst<const T> {
  enum : bool { kValue = true };
};
template <typename T>
struct Parameter<T*> {
  static T* get(const ThreadInputs& inputs, uint32_t i) { return static_cast<T*>(inputs.pointers[i]); }
  enum : size_t { kSize = sizeof(T), kAlignment = alignof(T) };
  enum : uint32_t { kDimensions = 1 };
  enum : bool { kIsReference = false, kIsWritten = !IsConst<T>::kValue, kIsPointer = true };
};
template <typename T>
struct Parameter<T&> {
  static T& get(const ThreadInputs& inputs, uint32_t i) { return *static_cast<T*>(inputs.pointers[i]); }
  enum : size_t { kSize = sizeof(T), kAlignment = alignof(T) };
  enum : uint32_t { kDimensions = 1 };
  enum : bool { kIsReference = true, kIsWritten = !IsConst<T>::kValue, kIsPointer = true };
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
