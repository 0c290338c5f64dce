# Libraries from the distribution's packages (scripts/setup.sh installs them). None is vendored.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

find_path(KIPP_EXPECTED_INCLUDE_DIR tl/expected.hpp REQUIRED)
find_path(KIPP_UTF8PROC_INCLUDE_DIR utf8proc.h REQUIRED)
find_library(KIPP_UTF8PROC_LIBRARY NAMES libutf8proc.a utf8proc REQUIRED)
add_library(kipp_utf8proc INTERFACE)
target_include_directories(kipp_utf8proc SYSTEM INTERFACE "${KIPP_UTF8PROC_INCLUDE_DIR}")
target_link_libraries(kipp_utf8proc INTERFACE "${KIPP_UTF8PROC_LIBRARY}")

if(KIPP_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
