// Which kernels are compiled in, and what their source says of them.
#include <map>
#include <string>

#include "metal/emulation/gpu.h"

namespace kipp::metal_emulation {
namespace {

std::map<std::string, const FunctionEntry*>& registry() {
  static std::map<std::string, const FunctionEntry*> functions;
  return functions;
}

}  // namespace

bool register_function(const FunctionEntry& entry) {
  return registry().emplace(entry.name, &entry).second;
}

const FunctionEntry* find_function(const std::string& name) {
  const auto found = registry().find(name);
  return found == registry().end() ? nullptr : found->second;
}

std::vector<std::string> functions() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : registry()) names.push_back(name);
  return names;
}

Result<FunctionFacts> facts_of(const std::string& function) {
  const FunctionEntry* entry = find_function(function);
  if (entry == nullptr) return make_error(ErrorCode::kNotFound, "no kernel is called " + function);
  FunctionFacts facts{.max_total_threads_per_threadgroup = kMaxThreads,
                      .static_threadgroup_memory = 0,
                      .arguments = {},
                      .constants = {}};
  for (uint32_t i = 0; i < entry->num_parameters; ++i) {
    const ParameterEntry& p = entry->parameters[i];
    facts.arguments.push_back(
        {p.name, p.attribute, p.index, p.space, p.is_written, p.element_size, p.element_alignment});
  }
  for (uint32_t i = 0; i < entry->num_constants; ++i) {
    const ConstantEntry& c = entry->constants[i];
    facts.constants.push_back({c.name, c.index, c.type});
  }
  return facts;
}

}  // namespace kipp::metal_emulation
