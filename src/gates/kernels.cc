// Which classes a phase may miss, and the comparison of what ran with what the backend has.
#include "gates/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace kipp::gates {
namespace {

using Counts = std::map<std::string, uint64_t, std::less<>>;

bool is_class_of(std::string_view kernel, std::string_view stem) {
  return kernel.starts_with(stem) && (kernel.size() == stem.size() || kernel[stem.size()] == '_');
}

void check_operators(const OperatorTable& operators, const Counts& counts, PhaseRecord& record) {
  const std::pair<const char*, bool> exported[] = {
      {"embedding", operators.embedding != nullptr}, {"rms_norm", operators.rms_norm != nullptr},
      {"matmul", operators.matmul != nullptr},       {"rope", operators.rope != nullptr},
      {"kv_write", operators.kv_write != nullptr},   {"attention", operators.attention != nullptr},
      {"swiglu", operators.swiglu != nullptr},       {"residual_add", operators.residual_add != nullptr}};
  for (const auto& [name, is_exported] : exported) {
    const auto is_its_class = [stem = name](const auto& kernel) { return is_class_of(kernel.first, stem); };
    if (is_exported && std::none_of(counts.begin(), counts.end(), is_its_class)) {
      record.fail("kernels", fmt::format("{} exports {}, but reports no kernel class of it", operators.backend, name));
    }
  }
}

}  // namespace

void check_kernels(std::span<const Report> reports, const OperatorTable& operators, Unreachable unreachable,
                   PhaseRecord& record) {
  Counts counts;
  for (const Report& report : reports) {
    for (const auto& [name, count] : report.kernels) {
      counts[name] += count;
    }
  }
  check_operators(operators, counts, record);
  Json kernels = Json::object();
  for (const auto& [name, count] : counts) {
    if (count == 0 && std::ranges::find(unreachable, name) == unreachable.end()) {
      record.fail("kernels", fmt::format("{} has the kernel class {}, which never ran", operators.backend, name));
    }
    kernels.set(name, Json::number(static_cast<int64_t>(count)));
  }
  record.details.set("kernels", std::move(kernels));
}

}  // namespace kipp::gates
