// Finds a backend by name: among those linked in, or in a shared object beside the program (or in the folder that
// KIPP_BACKENDS names), so that one build runs with and without a GPU.
#include <dlfcn.h>

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/oracle/oracle_backend.h"

namespace kipp {
namespace {

struct BackendEntry {
  std::string_view name;
  Result<std::unique_ptr<Backend>> (*create)(const BackendOptions& options);
};

constexpr std::array kLinkedIn = {
    BackendEntry{"cpu", create_cpu_backend},
    BackendEntry{"oracle", create_oracle_backend},
};
constexpr std::array<std::string_view, 1> kShared = {"cuda"};

// The symbol of a shared object. Both sides come from one build; what it returns is the caller's to delete.
constexpr const char* kSymbol = "kipp_create_backend";
using CreateShared = Result<std::unique_ptr<Backend>>* (*)(const BackendOptions*);

std::filesystem::path object_of(std::string_view name) {
  const char* folder = std::getenv("KIPP_BACKENDS");
  std::error_code ignored;
  const std::filesystem::path where = folder != nullptr && *folder != '\0'
                                          ? std::filesystem::path(folder)
                                          : std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  return where / fmt::format("libkipp_backend_{}.so", name);
}

bool is_there(std::string_view name) {
  std::error_code ignored;
  return std::filesystem::exists(object_of(name), ignored);
}

// The object stays open: its code runs as long as the backend lives, and it holds the driver's state.
Result<std::unique_ptr<Backend>> create_shared(std::string_view name, const BackendOptions& options) {
  const std::string path = object_of(name).string();
  void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) {
    return make_error(ErrorCode::kUnsupported, fmt::format("the backend \"{}\" cannot be loaded: {}", name, dlerror()));
  }
  const auto create = reinterpret_cast<CreateShared>(dlsym(object, kSymbol));
  if (create == nullptr) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{} is no backend of Kipp's: it has no symbol {}", path, kSymbol));
  }
  const std::unique_ptr<Result<std::unique_ptr<Backend>>> made(create(&options));
  return std::move(*made);
}

}  // namespace

Result<std::unique_ptr<Backend>> create_backend(std::string_view name, const BackendOptions& options) {
  for (const BackendEntry& entry : kLinkedIn) {
    if (entry.name == name) {
      return entry.create(options);
    }
  }
  for (const std::string_view shared : kShared) {
    if (shared == name && is_there(shared)) {
      return create_shared(shared, options);
    }
    if (shared == name) {
      return make_error(ErrorCode::kNotFound,
                        fmt::format("no backend \"{}\": there is no {}: this build has {}", name,
                                    object_of(name).string(), fmt::join(available_backends(), ", ")));
    }
  }
  return make_error(ErrorCode::kNotFound,
                    fmt::format("no backend \"{}\": this build has {}", name, fmt::join(available_backends(), ", ")));
}

std::vector<std::string> available_backends() {
  std::vector<std::string> names;
  for (const BackendEntry& entry : kLinkedIn) {
    names.emplace_back(entry.name);
  }
  for (const std::string_view shared : kShared) {
    if (is_there(shared)) names.emplace_back(shared);
  }
  return names;
}

}  // namespace kipp
