// Provenance, vectors and phases in one object.
#include "gates/record.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "base/machine.h"

namespace kipp::gates {
namespace {

Json text(std::string_view value) {
  return Json::string(std::string(value));
}

Json artifact_json(const GateInput& input) {
  const ArtifactInfo& info = input.file.info();
  return Json::object({{"checkpoint", text(info.checkpoint->id)},
                       {"repository", text(info.source_repository)},
                       {"revision", text(info.source_revision)},
                       {"scheme", text(scheme_name(info.scheme))},
                       {"layers", Json::number(int64_t{info.dimensions.num_layers})},
                       {"synthetic", Json::boolean(info.synthetic)},
                       {"header_sha256", text(input.file.header_sha256())}});
}

Json vectors_json(const VectorSet& vectors) {
  Json prompts = Json::array();
  for (const PromptVectors& prompt : vectors.prompts) {
    prompts.push_back(Json::object({{"name", text(prompt.name)},
                                    {"sha256", text(prompt.sha256)},
                                    {"tokens", Json::number(static_cast<int64_t>(prompt.ids.size()))}}));
  }
  return Json::object({{"manifest_sha256", text(vectors.manifest_sha256)},
                       {"reference", vectors.reference},
                       {"nmse_max", vectors.nmse_max ? Json::number(*vectors.nmse_max) : Json()},
                       {"prompts", std::move(prompts)}});
}

Json phase_json(const PhaseRecord& phase) {
  Json failures = Json::array();
  for (const std::string& failure : phase.failures) {
    failures.push_back(text(failure));
  }
  return Json::object({{"name", text(phase.name)},
                       {"verdict", text(phase.passed() ? "passed" : "failed")},
                       {"failures", std::move(failures)},
                       {"seconds", Json::number(phase.seconds)},
                       {"details", phase.details}});
}

}  // namespace

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  constexpr std::string_view kField = "model name";
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with(kField) && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

bool all_passed(const std::vector<PhaseRecord>& phases) {
  return !phases.empty() &&
         std::all_of(phases.begin(), phases.end(), [](const PhaseRecord& phase) { return phase.passed(); });
}

Json make_record(const GateInput& input, const std::vector<PhaseRecord>& phases, const Provenance& provenance) {
  Json phase_list = Json::array();
  for (const PhaseRecord& phase : phases) {
    phase_list.push_back(phase_json(phase));
  }
  const int32_t processors = available_processors();
  const int32_t threads = input.setup.num_threads > 0 ? input.setup.num_threads : processors;
  return Json::object({{"format_version", Json::number(int64_t{1})},
                       {"kind", text("gates")},
                       {"utc", text(provenance.utc)},
                       {"engine", Json::object({{"version", text(provenance.version)},
                                                {"commit", text(provenance.commit)},
                                                {"compiler", text(provenance.compiler)},
                                                {"build_type", text(provenance.build_type)}})},
                       {"machine", Json::object({{"processor", text(processor_name())},
                                                 {"processors", Json::number(int64_t{processors})},
                                                 {"threads", Json::number(int64_t{threads})}})},
                       {"backend", text(input.setup.backend)},
                       {"artifact", artifact_json(input)},
                       {"vectors", vectors_json(input.vectors)},
                       {"phases", std::move(phase_list)},
                       {"verdict", text(all_passed(phases) ? "passed" : "failed")}});
}

}  // namespace kipp::gates
