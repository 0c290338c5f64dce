// The manifest and its files. Everything that a gate indexes with is checked here.
#include "gates/vectors.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>

#include "base/mapped_file.h"
#include "base/sha256.h"
#include "gates/safetensors.h"

namespace kipp::gates {
namespace {

constexpr int64_t kFormatVersion = 1;
constexpr int64_t kNumGreedy = 8;

tl::unexpected<Error> invalid(const std::filesystem::path& path, const std::string& what) {
  return make_error(ErrorCode::kInvalidArtifact, fmt::format("{}: {}", path.string(), what));
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<std::string> string_field(const Json& object, const char* field, const std::filesystem::path& path) {
  const Json* value = object.find(field);
  if (value == nullptr || !value->is_string()) {
    return invalid(path, fmt::format("{}: expected a string, found {}", field,
                                     value == nullptr ? "nothing" : kind_name(value->kind())));
  }
  return value->as_string();
}

Result<std::optional<std::string>> nullable_field(const Json& object, const char* field,
                                                  const std::filesystem::path& path) {
  const Json* value = object.find(field);
  if (value != nullptr && value->is_null()) {
    return std::nullopt;
  }
  KIPP_ASSIGN(auto text, string_field(object, field, path));
  return text;
}

Result<void> check_positions(const std::filesystem::path& path, const char* name, std::span<const int32_t> positions,
                             size_t num_tokens) {
  int64_t previous = -1;
  for (const int32_t position : positions) {
    if (position <= previous || static_cast<size_t>(position) >= num_tokens) {
      return invalid(path, fmt::format("{}: expected ascending positions below {}, found {} after {}", name, num_tokens,
                                       position, previous));
    }
    previous = position;
  }
  return {};
}

Result<void> check_ids(const std::filesystem::path& path, const char* name, std::span<const int32_t> ids,
                       int32_t vocab) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab) {
      return invalid(path, fmt::format("{}: expected ids below {}, found {}", name, vocab, id));
    }
  }
  return {};
}

Result<void> check_finite_values(const std::filesystem::path& path, const char* name, std::span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      return invalid(path, fmt::format("{}: expected finite values, found {} at element {}", name, values[i], i));
    }
  }
  return {};
}

Result<void> read_ids(const SafetensorsFile& file, const std::filesystem::path& path, const Dimensions& dimensions,
                      PromptVectors& prompt) {
  KIPP_ASSIGN(prompt.ids, file.integers("ids", {-1}));
  if (prompt.ids.empty()) {
    return invalid(path, "ids: expected at least one token");
  }
  return check_ids(path, "ids", prompt.ids, dimensions.vocab);
}

// What a reference computed of the prompt's ids, which are read already.
Result<void> read_reference(const SafetensorsFile& file, const std::filesystem::path& path,
                            const Dimensions& dimensions, PromptVectors& prompt) {
  const auto num_tokens = static_cast<int64_t>(prompt.ids.size());
  KIPP_ASSIGN(prompt.final_hidden, file.floats("final_hidden", {num_tokens, dimensions.hidden}));
  KIPP_ASSIGN(prompt.logit_positions, file.integers("logit_positions", {-1}));
  const auto num_logits = static_cast<int64_t>(prompt.logit_positions.size());
  KIPP_ASSIGN(prompt.logits, file.floats("logits", {num_logits, dimensions.vocab}));
  KIPP_ASSIGN(prompt.tap_positions, file.integers("tap_positions", {-1}));
  const auto num_taps = static_cast<int64_t>(prompt.tap_positions.size());
  KIPP_ASSIGN(prompt.taps, file.floats("taps", {dimensions.num_layers + 1, num_taps, dimensions.hidden}));
  if (file.contains("greedy")) {
    KIPP_ASSIGN(prompt.greedy, file.integers("greedy", {kNumGreedy}));
  }
  KIPP_TRY(check_ids(path, "greedy", prompt.greedy, dimensions.vocab));
  KIPP_TRY(check_positions(path, "logit_positions", prompt.logit_positions, prompt.ids.size()));
  KIPP_TRY(check_positions(path, "tap_positions", prompt.tap_positions, prompt.ids.size()));
  KIPP_TRY(check_finite_values(path, "final_hidden", prompt.final_hidden));
  KIPP_TRY(check_finite_values(path, "logits", prompt.logits));
  return check_finite_values(path, "taps", prompt.taps);
}

Result<PromptVectors> load_prompt(const std::filesystem::path& manifest, const Json& entry,
                                  const Dimensions& dimensions, bool has_reference) {
  PromptVectors prompt;
  KIPP_ASSIGN(prompt.name, string_field(entry, "name", manifest));
  KIPP_ASSIGN(const std::string file_name, string_field(entry, "file", manifest));
  KIPP_ASSIGN(prompt.sha256, string_field(entry, "sha256", manifest));
  KIPP_ASSIGN(prompt.text, nullable_field(entry, "text", manifest));
  if (file_name.empty() || file_name.find('/') != std::string::npos) {
    return invalid(manifest, fmt::format("file: expected a name in the manifest's folder, found '{}'", file_name));
  }
  const std::filesystem::path path = manifest.parent_path() / file_name;
  KIPP_ASSIGN(const auto file, SafetensorsFile::open(path));
  const std::string found = sha256_hex(file.bytes());
  if (found != prompt.sha256) {
    return invalid(path, fmt::format("sha256: the manifest expects {}, found {}", prompt.sha256, found));
  }
  KIPP_TRY(read_ids(file, path, dimensions, prompt));
  if (has_reference) {
    KIPP_TRY(read_reference(file, path, dimensions, prompt));
  }
  const Json* num_tokens = entry.find("num_tokens");
  if (num_tokens == nullptr || num_tokens->as_uint64() != prompt.ids.size()) {
    return invalid(manifest,
                   fmt::format("num_tokens of {}: expected the {} of its file", prompt.name, prompt.ids.size()));
  }
  return prompt;
}

Result<std::optional<double>> load_bound(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return std::nullopt;
  }
  KIPP_ASSIGN(const auto file, MappedFile::open(path));
  std::string_view text = text_of(file.bytes());
  text = text.substr(0, text.find_last_not_of(" \r\n") + 1);
  double bound = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bound);
  if (error != std::errc() || end != text.data() + text.size() || !(bound > 0.0 && bound < 1.0)) {
    return invalid(path, fmt::format("expected one number between 0 and 1, found '{}'", text.substr(0, 40)));
  }
  return bound;
}

bool has_dtype(const Json& reference, std::string_view name) {
  const Json* dtype = reference.find("dtype");
  return dtype != nullptr && dtype->as_string() == name;
}

// nmse-max.txt loosens a gate, so that a stale one must not count: the manifest announces it (nmse_max; absent or null
// means that there is none), and only a reference that rounds to BF16 itself, or weights that are quantised, may have
// one. The manifest's scheme and dtype are read already.
Result<void> check_bound(const std::filesystem::path& path, const Json& manifest, const VectorSet& set) {
  const Json* field = manifest.find("nmse_max");
  const bool is_announced = field != nullptr && !field->is_null();
  if (is_announced && !field->is_number()) {
    return invalid(path, fmt::format("nmse_max: expected a number or null, found {}", kind_name(field->kind())));
  }
  const auto shown = [](bool is_there, double bound) { return is_there ? fmt::format("{}", bound) : "none"; };
  const double announced = is_announced ? field->as_double().value_or(NAN) : 0.0;  // 0 is no bound: load_bound
  if (announced != set.nmse_max.value_or(0.0)) {
    return invalid(
        path, fmt::format("nmse_max: the manifest announces {}, nmse-max.txt beside it holds {}",
                          shown(is_announced, announced), shown(set.nmse_max.has_value(), set.nmse_max.value_or(0.0))));
  }
  if (is_announced && !has_dtype(set.reference, "bfloat16") && set.quant_scheme == "bf16") {
    return invalid(path, fmt::format("nmse_max: expected none for a reference in FP32 of unquantised weights, found {}",
                                     announced));
  }
  return {};
}

// An object of the manifest that says how far one run of the reference lies from another. Null if there is none.
Result<Json> read_distance(const std::filesystem::path& path, const Json& manifest, const char* field,
                           std::initializer_list<const char*> figures) {
  const Json* distance = manifest.find(field);
  if (distance == nullptr || distance->is_null()) {
    return Json();
  }
  for (const char* figure : figures) {
    const Json* value = distance->find(figure);
    if (value == nullptr || !(value->as_double().value_or(-1.0) >= 0.0)) {
      return invalid(path, fmt::format("{}.{}: expected a number that is not negative", field, figure));
    }
  }
  const auto count = [distance](const char* figure) {
    const Json* value = distance->find(figure);
    return value == nullptr ? std::nullopt : value->as_uint64();
  };
  if (!count("positions") || !count("argmax_equal") || *count("argmax_equal") > *count("positions")) {
    return invalid(path, fmt::format("{}: expected argmax_equal and positions, the first not above the second", field));
  }
  return *distance;
}

// The manifest's scheme is read already.
Result<Json> read_loss(const std::filesystem::path& path, const Json& manifest, const VectorSet& set) {
  constexpr const char* kField = "loss_against_bf16";
  KIPP_ASSIGN(Json loss, read_distance(path, manifest, kField, {"nmse", "worst_nmse"}));
  if (!loss.is_null() && set.quant_scheme == "bf16") {
    return invalid(path, fmt::format("{}: expected none of vectors of BF16 weights", kField));
  }
  return loss;
}

// It widens the bound of Phase 1, and so must be plausible, and of a reference that does not round anything else.
Result<Json> read_kv_rounding(const std::filesystem::path& path, const Json& manifest, const VectorSet& set) {
  constexpr const char* kField = "kv_rounding";
  KIPP_ASSIGN(Json rounding, read_distance(path, manifest, kField, {"nmse", "worst_nmse", "worst_prompt_nmse"}));
  if (rounding.is_null()) {
    return rounding;
  }
  if (!has_dtype(set.reference, "float32")) {
    return invalid(path, fmt::format("{}: expected none but of a reference in float32", kField));
  }
  const double worst = rounding.find("worst_prompt_nmse")->as_double().value_or(NAN);
  if (!(worst <= kMostKvRounding)) {
    return invalid(path, fmt::format("{}.worst_prompt_nmse: expected at most {}, found {}: rounding K and V leads this "
                                     "checkpoint too far for the bounds of the gates",
                                     kField, kMostKvRounding, worst));
  }
  return rounding;
}

}  // namespace

Result<VectorSet> load_vectors(const std::filesystem::path& folder, const Dimensions& dimensions) {
  const std::filesystem::path path = folder / "manifest.json";
  KIPP_ASSIGN(const auto file, MappedFile::open(path));
  const auto manifest = parse_json(text_of(file.bytes()));
  if (!manifest) {
    return invalid(path, manifest.error().message);
  }
  const Json* version = manifest->find("format_version");
  if (version == nullptr || version->as_int64() != kFormatVersion) {
    return invalid(path, fmt::format("format_version: expected {}", kFormatVersion));
  }
  VectorSet set;
  set.manifest_sha256 = sha256_hex(file.bytes());
  KIPP_ASSIGN(set.checkpoint_id, string_field(*manifest, "checkpoint_id", path));
  KIPP_ASSIGN(set.repository, string_field(*manifest, "repository", path));
  KIPP_ASSIGN(set.revision, string_field(*manifest, "revision", path));
  KIPP_ASSIGN(set.quant_scheme, string_field(*manifest, "quant_scheme", path));
  KIPP_ASSIGN(set.header_sha256, nullable_field(*manifest, "header_sha256", path));
  const Json* reference = manifest->find("reference");
  const Json* prompts = manifest->find("prompts");
  if (reference == nullptr || !(reference->is_object() || reference->is_null()) || prompts == nullptr ||
      prompts->items().empty()) {
    return invalid(path, "expected an object `reference`, or null, and a list `prompts` that is not empty");
  }
  set.reference = *reference;
  KIPP_ASSIGN(set.nmse_max, load_bound(folder / "nmse-max.txt"));
  KIPP_TRY(check_bound(path, *manifest, set));
  KIPP_ASSIGN(set.loss_against_bf16, read_loss(path, *manifest, set));
  KIPP_ASSIGN(set.kv_rounding, read_kv_rounding(path, *manifest, set));
  if (!set.has_reference() && (set.nmse_max || !set.loss_against_bf16.is_null())) {
    return invalid(path, "nmse_max and loss_against_bf16 say what a reference is like, and `reference` is null");
  }
  for (const Json& entry : prompts->items()) {
    KIPP_ASSIGN(PromptVectors prompt, load_prompt(path, entry, dimensions, set.has_reference()));
    set.prompts.push_back(std::move(prompt));
  }
  return set;
}

}  // namespace kipp::gates
