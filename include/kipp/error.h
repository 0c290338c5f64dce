// The error type of every fallible call. Errors are values with context: where it happened, what was
// expected, what was found, what to do. The library never prints, exits or aborts on bad input.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace kipp {

enum class ErrorCode {
  kInvalidArgument,  // the caller's values are wrong (parameters, token ids, UTF-8, JSON)
  kInvalidArtifact,  // a file is not exactly what the registry predicts
  kNotFound,         // a file, a checkpoint id or a backend does not exist
  kIo,               // the operating system refused or cut short a read, write or map
  kUnsupported,      // valid, but this build, backend or checkpoint cannot do it
  kCapacity,         // does not fit: context length, KV blocks, memory
  kNumerical,        // a result is not finite
  kInternal,         // a broken invariant of Kipp itself
};

// "invalid_argument", "invalid_artifact", …: what answers to clients call it.
const char* error_code_name(ErrorCode code);

struct Error {
  ErrorCode code;
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> make_error(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

}  // namespace kipp

// Returns the error of a Result<…> expression to the caller, or goes on.
#define KIPP_TRY(expression)                                                    \
  do {                                                                          \
    auto kipp_try_result = (expression);                                        \
    if (!kipp_try_result) {                                                     \
      return tl::unexpected<::kipp::Error>(std::move(kipp_try_result).error()); \
    }                                                                           \
  } while (false)

#define KIPP_CONCAT_INNER(a, b) a##b
#define KIPP_CONCAT(a, b) KIPP_CONCAT_INNER(a, b)

// KIPP_ASSIGN(auto file, MappedFile::open(path)): declares or assigns, or returns the error.
#define KIPP_ASSIGN(target, expression)                                                           \
  auto KIPP_CONCAT(kipp_assign_, __LINE__) = (expression);                                        \
  if (!KIPP_CONCAT(kipp_assign_, __LINE__)) {                                                     \
    return tl::unexpected<::kipp::Error>(std::move(KIPP_CONCAT(kipp_assign_, __LINE__)).error()); \
  }                                                                                               \
  target = std::move(*KIPP_CONCAT(kipp_assign_, __LINE__))
