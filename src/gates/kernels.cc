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

// "matmul_q8_0" and "matmul_q8_0_wide", but not "matmul_q8_01".
bool has_word(std::string_view kernel, std::string_view word) {
  const size_t place = kernel.find(word);
  if (place == std::string_view::npos || place == 0 || kernel[place - 1] != '_') {
    return false;
  }
  return place + word.size() == kernel.size() || kernel[place + word.size()] == '_';
}

}  // namespace

bool is_reachable(std::string_view kernel, QuantScheme scheme) {
  if (is_class_of(kernel, "attention") || is_class_of(kernel, "kv_write")) {
    return true;
  }
  const auto reads = [kernel](QuantScheme weights) { return has_word(kernel, scheme_name(weights)); };
  const bool is_of_another = (scheme != QuantScheme::kQ8_0 && reads(QuantScheme::kQ8_0)) ||
                             (scheme != QuantScheme::kAffine4Gs32 && reads(QuantScheme::kAffine4Gs32));
  return !is_of_another;
}

void check_kernels(std::span<const Report> reports, const OperatorTable& operators, QuantScheme scheme,
                   Unreachable unreachable, PhaseRecord& record) {
  Counts counts;
  for (const Report& report : reports) {
    for (const auto& [name, count] : report.kernels) {
      counts[name] += count;
    }
  }
  check_operators(operators, counts, record);
  Json kernels = Json::object();
  for (const auto& [name, count] : counts) {
    const bool is_of_artifact = is_reachable(name, scheme);
    if (count > 0 && !is_of_artifact) {
      record.fail("kernels", fmt::format("{} ran the kernel class {}, but the artifact's scheme is {}",
                                         operators.backend, name, scheme_name(scheme)));
    }
    if (count == 0 && is_of_artifact && std::ranges::find(unreachable, name) == unreachable.end()) {
      record.fail("kernels", fmt::format("{} has the kernel class {}, which never ran", operators.backend, name));
    }
    kernels.set(name, Json::number(static_cast<int64_t>(count)));
  }
  record.details.set("kernels", std::move(kernels));
}

}  // namespace kipp::gates
