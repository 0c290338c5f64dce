// Evaluates token ids from stdin ("1 2 3", one prompt a line) and writes the logits of every position to a file: rows
// of [vocab] floats as they are in memory, prompt after prompt. For test_llama_cpp.py.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "kipp/engine.h"

namespace {

kipp::Result<void> write_prompt(kipp::Model& model, std::span<const int32_t> ids, std::ofstream& output) {
  KIPP_ASSIGN(auto session, model.new_session());
  KIPP_ASSIGN(const auto rows, session.append_all_logits(ids));
  for (const std::vector<float>& row : rows) {
    output.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(row.size() * sizeof(float)));
  }
  return {};
}

kipp::Result<void> write_all(const std::string& artifact, const std::string& target, bool round_kv) {
  KIPP_ASSIGN(const auto model, kipp::Model::open(artifact, {.allow_synthetic = true, .round_kv = round_kv}));
  std::ofstream output(target, std::ios::binary);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::vector<int32_t> ids;
    for (int32_t id = 0; words >> id;) {
      ids.push_back(id);
    }
    if (!words.eof()) {
      return kipp::make_error(kipp::ErrorCode::kInvalidArgument, "expected ids, found \"" + line + "\"");
    }
    KIPP_TRY(write_prompt(*model, ids, output));
  }
  output.close();
  if (!output) {
    return kipp::make_error(kipp::ErrorCode::kIo, target + ": writing failed");
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> arguments(argv, static_cast<size_t>(argc));
  const bool fp32_kv = argc == 4 && std::string_view(arguments[3]) == "fp32-kv";
  if (argc != 3 && !fp32_kv) {
    fmt::print(stderr, "usage: interchange_logits ARTIFACT OUTPUT [fp32-kv] < ids\n");
    return 2;
  }
  const auto done = write_all(arguments[1], arguments[2], !fp32_kv);
  if (!done) {
    fmt::print(stderr, "error: {}\n", done.error().message);
    return 1;
  }
  return 0;
}
