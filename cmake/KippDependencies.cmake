# Libraries from the distribution's packages (scripts/setup.sh installs them). None is vendored.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
# Compiled once, in the distribution's library: header-only, every file that formats would compile the formatter again, and
# that was half of all compilation. There is no such library for another machine, nor a static one for a portable binary.
add_library(kipp_fmt INTERFACE)
if(KIPP_PORTABLE OR CMAKE_CROSSCOMPILING)
  target_link_libraries(kipp_fmt INTERFACE fmt::fmt-header-only)
else()
  target_link_libraries(kipp_fmt INTERFACE fmt::fmt)
endif()
find_package(nlohmann_json REQUIRED)

find_path(KIPP_EXPECTED_INCLUDE_DIR tl/expected.hpp REQUIRED)

if(NOT KIPP_OPERATORS_ONLY)
  find_package(CLI11 REQUIRED)
  find_path(KIPP_TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h REQUIRED)  # headers only
  find_path(KIPP_UTF8PROC_INCLUDE_DIR utf8proc.h REQUIRED)
  find_library(KIPP_UTF8PROC_LIBRARY NAMES libutf8proc.a utf8proc REQUIRED)
  add_library(kipp_utf8proc INTERFACE)
  target_include_directories(kipp_utf8proc SYSTEM INTERFACE "${KIPP_UTF8PROC_INCLUDE_DIR}")
  target_link_libraries(kipp_utf8proc INTERFACE "${KIPP_UTF8PROC_LIBRARY}")

  # Asio and Beast, headers only: src/server/http.
  find_package(Boost 1.81 REQUIRED)
  add_library(kipp_boost INTERFACE)
  target_include_directories(kipp_boost SYSTEM INTERFACE "${Boost_INCLUDE_DIRS}")
  target_compile_definitions(kipp_boost INTERFACE BOOST_ASIO_NO_DEPRECATED)
  if(KIPP_PORTABLE)
    set(OPENSSL_USE_STATIC_LIBS TRUE)
  endif()
  find_package(OpenSSL 3.0 REQUIRED)

  # libedit: the shared one, or for a portable binary the static one with what it stands on.
  find_path(KIPP_EDIT_INCLUDE_DIR histedit.h REQUIRED)
  if(KIPP_PORTABLE)
    set(edit_names libedit.a libbsd.a libmd.a libtinfo.a)
  else()
    set(edit_names edit)
  endif()
  add_library(kipp_edit INTERFACE)
  target_include_directories(kipp_edit SYSTEM INTERFACE "${KIPP_EDIT_INCLUDE_DIR}")
  foreach(name IN LISTS edit_names)
    find_library(KIPP_EDIT_LIBRARY_${name} NAMES ${name} REQUIRED)
    target_link_libraries(kipp_edit INTERFACE "${KIPP_EDIT_LIBRARY_${name}}")
  endforeach()
endif()

if(KIPP_BUILD_TESTS AND CMAKE_CROSSCOMPILING)
  # Debian's libraries are for this machine; the sources beside them are for any.
  add_subdirectory(/usr/src/googletest "${PROJECT_BINARY_DIR}/googletest" EXCLUDE_FROM_ALL SYSTEM)
elseif(KIPP_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
