// What every rejection must look like: the right code, and a message that names the field, what was expected and found.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf_builder.h"
#include "gguf/model_file.h"

namespace kipp::gguf {

inline void expect_message(const Error& error, ErrorCode code, const std::vector<std::string>& parts) {
  EXPECT_EQ(error.code, code) << error.message;
  EXPECT_NE(error.message.find("expected"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("found"), std::string::npos) << error.message;
  for (const std::string& part : parts) {
    EXPECT_NE(error.message.find(part), std::string::npos) << "no " << part << " in: " << error.message;
  }
}

inline Result<ModelFile> open_image(const FileImage& image, bool allow_synthetic = true) {
  TemporaryFile file;
  file.write_image(image);
  return ModelFile::open(file.path(), {.allow_synthetic = allow_synthetic});
}

inline void expect_rejected(const FileImage& image, ErrorCode code, const std::vector<std::string>& parts) {
  const auto model = open_image(image);
  ASSERT_FALSE(model) << "accepted, but expected a rejection naming " << (parts.empty() ? "" : parts.front());
  expect_message(model.error(), code, parts);
}

}  // namespace kipp::gguf
