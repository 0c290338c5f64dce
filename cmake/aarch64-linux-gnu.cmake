# AArch64 from a Debian machine of another architecture: its cross compiler, and qemu-user to run what it makes
# (make test-aarch64). No library of the target is needed beyond the compiler's own.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

# The headers of fmt, nlohmann-json and expected are those of this machine. They come after all others, since those of
# this machine's C library lie beside them.
set(CMAKE_CXX_FLAGS_INIT "-idirafter /usr/include")
set(fmt_DIR "/usr/lib/${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu/cmake/fmt")

# A processor of plain ARMv8.0: an instruction that came later fails, as it would on such a machine.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu cortex-a72 -L /usr/aarch64-linux-gnu)
