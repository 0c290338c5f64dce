// Reads the JSON Lines files of tests/golden.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kipp::testing {

inline std::vector<nlohmann::json> read_golden(const std::string& name) {
  std::ifstream file(KIPP_SOURCE_DIR "/tests/golden/" + name);
  std::vector<nlohmann::json> cases;
  for (std::string line; std::getline(file, line);) {
    cases.push_back(nlohmann::json::parse(line));
  }
  return cases;
}

}  // namespace kipp::testing
