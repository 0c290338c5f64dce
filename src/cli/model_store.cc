// Looks names up; nothing is opened.
#include "cli/model_store.h"

#include <algorithm>
#include <array>
#include <system_error>

#include <fmt/format.h>

#include "base/suggest.h"

namespace kipp::cli {
namespace {

constexpr std::array kSchemes = {QuantScheme::kBf16, QuantScheme::kQ8_0, QuantScheme::kAffine4Gs32};  // exact first

std::optional<QuantScheme> find_scheme(std::string_view name) {
  for (const QuantScheme scheme : kSchemes) {
    if (name == scheme_name(scheme)) {
      return scheme;
    }
  }
  return std::nullopt;
}

std::string near_id(std::string_view model) {
  std::vector<std::string> ids;
  ids.reserve(kCheckpoints.size());
  for (const Checkpoint& checkpoint : kCheckpoints) {
    ids.emplace_back(checkpoint.id);
  }
  return did_you_mean(model, ids);
}

bool is_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

// A path as a word of a POSIX shell: quoted where it holds more than what every shell takes as it is.
std::string shell_word(const std::filesystem::path& path) {
  const std::string text = path.string();
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("/._-+:,@%=").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, is_plain)) {
    return text;
  }
  std::string quoted = "'";
  for (const char c : text) {
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return quoted + "'";
}

}  // namespace

std::string artifact_name(const Checkpoint& checkpoint, QuantScheme scheme) {
  return fmt::format("kipp-{}-{}.gguf", checkpoint.id, scheme_name(scheme));
}

std::vector<StoredArtifact> stored_artifacts(const std::filesystem::path& folder, const Checkpoint& checkpoint) {
  std::vector<StoredArtifact> found;
  for (const QuantScheme scheme : kSchemes) {
    const std::filesystem::path path = folder / artifact_name(checkpoint, scheme);
    std::error_code error;
    const uint64_t bytes = is_file(path) ? std::filesystem::file_size(path, error) : 0;
    if (is_file(path) && !error) {
      found.push_back({scheme, path, bytes});
    }
  }
  return found;
}

std::string how_to_make(const Checkpoint& checkpoint, QuantScheme scheme, const std::filesystem::path& folder) {
  const std::string source = shell_word(folder / checkpoint.id);
  const std::string output = shell_word(folder / artifact_name(checkpoint, scheme));
  const std::string fetch =
      checkpoint.is_demo
          ? fmt::format(".venv/bin/python -m tools.demo.unpack --output {}", source)
          : fmt::format(".venv/bin/python -m tools.download_model {} --output {}", checkpoint.id, source);
  const std::string how = scheme == QuantScheme::kBf16 ? "" : fmt::format(" --scheme {}", scheme_name(scheme));
  return fmt::format("  {}\n  .venv/bin/python -m tools.convert_to_gguf --checkpoint {}{} --source {} --output {}",
                     fetch, checkpoint.id, how, source, output);
}

Result<std::filesystem::path> find_artifact(std::string_view model, const std::filesystem::path& folder) {
  const std::filesystem::path path = model;
  std::error_code ignored;
  const size_t colon = model.find(':');
  const Checkpoint* checkpoint = find_checkpoint(model.substr(0, colon));
  const bool is_folder = std::filesystem::is_directory(path, ignored);  // a snapshot may lie under its id
  if (std::filesystem::exists(path, ignored) && !(is_folder && checkpoint != nullptr)) {
    return path;
  }
  if (checkpoint == nullptr) {
    const std::string near = model.find('/') == std::string_view::npos ? near_id(model.substr(0, colon)) : "";
    return near.empty()
               ? Result<std::filesystem::path>(path)
               : make_error(ErrorCode::kNotFound, fmt::format("{}: no such file or checkpoint{}", model, near));
  }
  std::optional<QuantScheme> scheme;
  if (colon != std::string_view::npos) {
    scheme = find_scheme(model.substr(colon + 1));
    if (!scheme) {
      return make_error(ErrorCode::kInvalidArgument, fmt::format("{}: expected the scheme bf16, q8_0 or affine4_gs32, "
                                                                 "found \"{}\"",
                                                                 model, model.substr(colon + 1)));
    }
  }
  for (const StoredArtifact& artifact : stored_artifacts(folder, *checkpoint)) {
    if (!scheme || artifact.scheme == *scheme) {
      return artifact.path;
    }
  }
  const QuantScheme wanted = scheme.value_or(QuantScheme::kBf16);
  return make_error(
      ErrorCode::kNotFound,
      fmt::format("{}: no {} in the models folder {}; these commands, run in Kipp's repository, make it:\n{}", model,
                  artifact_name(*checkpoint, wanted), folder.string(), how_to_make(*checkpoint, wanted, folder)));
}

}  // namespace kipp::cli
