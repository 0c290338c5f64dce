// Finds a backend by name: among those linked in, or in a shared object beside the program (or in the folder that
// KIPP_BACKENDS names), so that one build runs with and without a GPU.
#include <dlfcn.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "backend/backend.h"
#include "backend/backend_machine.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/limit_probe.h"
#include "backend/oracle/oracle_backend.h"

namespace kipp {
namespace {

struct BackendEntry {
  std::string_view name;
  Result<std::unique_ptr<Backend>> (*create)(const BackendOptions& options);
  Result<std::unique_ptr<LimitProbe>> (*create_probe)(const BackendOptions& options,
                                                      std::span<const std::byte> artifact);
};

// The oracle computes where cpu does: it has the same limits, however little of them it uses.
constexpr std::array kLinkedIn = {
    BackendEntry{"cpu", create_cpu_backend, create_cpu_probe},
    BackendEntry{"oracle", create_oracle_backend, create_cpu_probe},
};
constexpr std::array<std::string_view, 1> kShared = {"cuda"};

// The symbols of a shared object. Both sides come from one build; what they return is the caller's to delete.
template <typename Made>
struct SharedSymbol {
  using Create = Result<std::unique_ptr<Made>>* (*)(const BackendOptions*);
  const char* name;
};
constexpr SharedSymbol<Backend> kBackendSymbol{"kipp_create_backend"};
constexpr SharedSymbol<LimitProbe> kProbeSymbol{"kipp_create_limit_probe"};

const BackendEntry* find_linked_in(std::string_view name) {
  const auto* found = std::ranges::find(kLinkedIn, name, &BackendEntry::name);
  return found == kLinkedIn.end() ? nullptr : found;
}

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

Result<void> check_shared(std::string_view name) {
  const bool known = uploads_weights(name);
  if (known && is_there(name)) {
    return {};
  }
  const std::string missing = known ? fmt::format("there is no {}: ", object_of(name).string()) : "";
  return make_error(ErrorCode::kNotFound, fmt::format("no backend \"{}\": {}this build has {}", name, missing,
                                                      fmt::join(available_backends(), ", ")));
}

// The object stays open: its code runs as long as what it made lives, and it holds the driver's state.
template <typename Made>
Result<std::unique_ptr<Made>> create_shared(std::string_view name, SharedSymbol<Made> symbol,
                                            const BackendOptions& options) {
  KIPP_TRY(check_shared(name));
  const std::string path = object_of(name).string();
  void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) {
    return make_error(ErrorCode::kUnsupported, fmt::format("the backend \"{}\" cannot be loaded: {}", name, dlerror()));
  }
  const auto create = reinterpret_cast<typename SharedSymbol<Made>::Create>(dlsym(object, symbol.name));
  if (create == nullptr) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{} is no backend of Kipp's: it has no symbol {}", path, symbol.name));
  }
  const std::unique_ptr<Result<std::unique_ptr<Made>>> made(create(&options));
  return std::move(*made);
}

}  // namespace

Result<std::unique_ptr<Backend>> create_backend(std::string_view name, const BackendOptions& options) {
  const BackendEntry* entry = find_linked_in(name);
  return entry != nullptr ? entry->create(options) : create_shared(name, kBackendSymbol, options);
}

Result<std::unique_ptr<LimitProbe>> create_limit_probe(std::string_view backend, const BackendOptions& options,
                                                       std::span<const std::byte> artifact) {
  const BackendEntry* entry = find_linked_in(backend);
  return entry != nullptr ? entry->create_probe(options, artifact) : create_shared(backend, kProbeSymbol, options);
}

// Those of shared objects are all for devices.
bool uploads_weights(std::string_view backend) {
  return std::ranges::find(kShared, backend) != kShared.end();
}

std::vector<std::string> available_backends() {
  std::vector<std::string> names;
  names.reserve(kLinkedIn.size() + kShared.size());
  for (const BackendEntry& entry : kLinkedIn) {
    names.emplace_back(entry.name);
  }
  for (const std::string_view shared : kShared) {
    if (is_there(shared)) names.emplace_back(shared);
  }
  return names;
}

}  // namespace kipp
