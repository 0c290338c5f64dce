// The gate records of this version (bench/results/gates-*.json), compiled in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "gguf/model_file.h"

namespace kipp::cli {

struct GateRecord {
  std::string_view checkpoint;  // registry id
  std::string_view scheme;
  std::string_view backend;
  std::string_view verdict;        // "passed" or "failed"
  std::string_view repository;     // "synthetic/…" for a twin
  std::string_view header_sha256;  // of the artifact: ModelFile::header_sha256()
  std::string_view processor;      // of the machine that ran the gates
  std::string_view commit;         // of the engine
  std::string_view utc;
  std::string_view phases;  // "0, 1, 2"
  bool synthetic;           // a twin proves the engine, not the checkpoint
};

std::vector<GateRecord> records_of(std::string_view checkpoint);
std::vector<GateRecord> records_of_artifact(const std::string& header_sha256);

// "oracle bf16: passed (0, 1, 2) on <processor>, engine <commit>, 2026-11-30".
std::string record_text(const GateRecord& record);
Json record_json(const GateRecord& record);

}  // namespace kipp::cli
