// Bytes to a descriptor, whatever it is.
#pragma once

#include <string_view>

namespace kipp {

// Writes until all bytes are out, again after a signal, and waits where the descriptor does not block. Returns 0, or
// the errno of the write that failed.
int write_all(int descriptor, std::string_view bytes);

}  // namespace kipp
