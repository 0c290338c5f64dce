// Names of error codes.
#include "kipp/error.h"

namespace kipp {

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid_argument";
    case ErrorCode::kInvalidArtifact: return "invalid_artifact";
    case ErrorCode::kNotFound: return "not_found";
    case ErrorCode::kIo: return "io";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kCapacity: return "capacity";
    case ErrorCode::kNumerical: return "numerical";
    case ErrorCode::kInternal: return "internal";
  }
  return "";
}

}  // namespace kipp
