// Finds a backend by name among those linked in. A backend that lives in a shared library joins behind the same
// function type, exported as one C symbol.
#include <fmt/format.h>

#include <array>

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

}  // namespace

Result<std::unique_ptr<Backend>> create_backend(std::string_view name, const BackendOptions& options) {
  for (const BackendEntry& entry : kLinkedIn) {
    if (entry.name == name) {
      return entry.create(options);
    }
  }
  std::string names;
  for (const BackendEntry& entry : kLinkedIn) {
    names.append(names.empty() ? "" : ", ").append(entry.name);
  }
  return make_error(ErrorCode::kNotFound, fmt::format("no backend \"{}\": this build has {}", name, names));
}

std::vector<std::string> available_backends() {
  std::vector<std::string> names;
  names.reserve(kLinkedIn.size());
  for (const BackendEntry& entry : kLinkedIn) {
    names.emplace_back(entry.name);
  }
  return names;
}

}  // namespace kipp
