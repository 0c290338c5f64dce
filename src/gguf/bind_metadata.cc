// Identity, dimensions and properties of an artifact against the registry. The keys are listed in docs/artifact.md
// and written by tools/artifact.py; a key that is not read here makes the file invalid.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/seeded_fault.h"
#include "gguf/binder.h"

namespace kipp::gguf {
namespace {

constexpr uint32_t kFormatVersion = 1;
constexpr uint64_t kMaxStopTokens = 16;
constexpr std::string_view kRepositoryKey = "kipp.source.repository";
constexpr std::string_view kRevisionKey = "kipp.source.revision";
constexpr std::string_view kSyntheticPrefix = "synthetic/";
constexpr std::string_view kTwinRevisionPrefix = "recipe1-seed";  // a new recipe is a new format of twins

struct SchemeFacts {
  QuantScheme scheme;
  std::string_view name;
  uint32_t file_type;  // general.file_type as other GGUF tools number it
};
constexpr std::array<SchemeFacts, 3> kSchemes = {{{QuantScheme::kBf16, "bf16", 32},
                                                  {QuantScheme::kQ8_0, "q8_0", 7},
                                                  {QuantScheme::kAffine4Gs32, "affine4_gs32", 3}}};

// A decimal number without sign or leading zero; nothing else in the text.
std::optional<uint64_t> parse_decimal(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool leading_zero = text.size() > 1 && text.front() == '0';
  if (error != std::errc{} || end != text.data() + text.size() || leading_zero) {
    return std::nullopt;
  }
  return value;
}

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

Result<void> check_architecture(MetadataReader& reader) {
  constexpr std::string_view kKey = "general.architecture";
  KIPP_ASSIGN(const auto found, reader.string(kKey));
  if (found != "qwen3") {
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("{}: expected \"qwen3\" (dense Qwen3, the only architecture that Kipp runs), found {}", kKey,
                    quote(found)));
  }
  return {};
}

Result<const Checkpoint*> find_entry(MetadataReader& reader) {
  constexpr std::string_view kKey = "kipp.checkpoint.id";
  KIPP_ASSIGN(const auto id, reader.string(kKey));
  const Checkpoint* checkpoint = find_checkpoint(id);
  if (checkpoint == nullptr) {
    return reader.mismatch(kKey, "the id of a checkpoint in the registry");
  }
  KIPP_TRY(reader.expect("general.name", id));
  return checkpoint;
}

Result<QuantScheme> bind_scheme(MetadataReader& reader) {
  constexpr std::string_view kKey = "kipp.quant.scheme";
  KIPP_ASSIGN(const auto name, reader.string(kKey));
  const auto* facts = std::find_if(kSchemes.begin(), kSchemes.end(), [&](const auto& s) { return s.name == name; });
  if (facts == kSchemes.end()) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{}: expected bf16, q8_0 or affine4_gs32, found {}", kKey, quote(name)));
  }
  constexpr std::string_view kFileType = "general.file_type";
  KIPP_ASSIGN(const auto file_type, reader.u32(kFileType));
  if (file_type != facts->file_type) {
    return reader.mismatch(kFileType, fmt::format("u32 {} (scheme {})", facts->file_type, name));
  }
  return facts->scheme;
}

// The layers of a twin: "synthetic/<id>" has all of them, "synthetic/<id>-<n>layers" the first n.
std::optional<int32_t> twin_layers(std::string_view repository, const Checkpoint& checkpoint) {
  std::string_view rest = repository.substr(kSyntheticPrefix.size());
  if (rest == checkpoint.id) {
    return checkpoint.num_layers;
  }
  constexpr std::string_view kSuffix = "layers";
  const std::string start = fmt::format("{}-", checkpoint.id);
  if (!rest.starts_with(start) || !rest.ends_with(kSuffix) || rest.size() < start.size() + kSuffix.size()) {
    return std::nullopt;
  }
  rest.remove_prefix(start.size());
  rest.remove_suffix(kSuffix.size());
  const auto num_layers = parse_decimal(rest);
  if (!num_layers || *num_layers < 1 || *num_layers >= static_cast<uint64_t>(checkpoint.num_layers)) {
    return std::nullopt;
  }
  return static_cast<int32_t>(*num_layers);
}

Result<void> bind_twin(MetadataReader& reader, bool allow_synthetic, ArtifactInfo& info) {
  const Checkpoint& checkpoint = *info.checkpoint;
  const auto num_layers = twin_layers(info.source_repository, checkpoint);
  if (!num_layers) {
    return reader.mismatch(kRepositoryKey, fmt::format("{0}{1} or {0}{1}-<1 to {2}>layers", kSyntheticPrefix,
                                                       checkpoint.id, checkpoint.num_layers - 1));
  }
  const std::string_view seed = info.source_revision;
  if (!seed.starts_with(kTwinRevisionPrefix) || !parse_decimal(seed.substr(kTwinRevisionPrefix.size()))) {
    return reader.mismatch(kRevisionKey, fmt::format("{}<seed>", kTwinRevisionPrefix));
  }
  if (!allow_synthetic) {
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("{}: expected {} ({}), found {}: a synthetic twin, whose weights are drawn from a seed; "
                    "it is accepted only with --allow-synthetic",
                    kRepositoryKey, quote(checkpoint.repository), checkpoint.id, quote(info.source_repository)));
  }
  info.dimensions = dimensions_of(checkpoint, *num_layers);
  return {};
}

Result<void> bind_source(MetadataReader& reader, bool allow_synthetic, ArtifactInfo& info) {
  KIPP_ASSIGN(const auto repository, reader.string(kRepositoryKey));
  KIPP_ASSIGN(const auto revision, reader.string(kRevisionKey));
  info.source_repository = repository;
  info.source_revision = revision;
  info.synthetic = repository.starts_with(kSyntheticPrefix);
  if (info.synthetic) {
    return bind_twin(reader, allow_synthetic, info);
  }
  KIPP_TRY(reader.expect(kRepositoryKey, info.checkpoint->repository));
  KIPP_TRY(reader.expect(kRevisionKey, info.checkpoint->revision));
  info.dimensions = dimensions_of(*info.checkpoint);
  return {};
}

Result<std::vector<std::string>> bind_source_hashes(MetadataReader& reader) {
  constexpr std::string_view kKey = "kipp.source.sha256";
  constexpr size_t kHashDigits = 64;
  KIPP_ASSIGN(auto entries, reader.strings(kKey));
  constexpr uint64_t kMaxFiles = 1024;
  if (entries.size() == 0 || entries.size() > kMaxFiles) {
    return reader.mismatch(kKey, fmt::format("1 to {} strings", kMaxFiles));
  }
  std::vector<std::string> hashes;
  for (uint64_t i = 0; i < entries.size(); ++i) {
    const std::string_view entry = entries.next();
    const size_t colon = entry.rfind(':');
    const bool valid = colon != std::string_view::npos && colon > 0 && entry.size() - colon - 1 == kHashDigits &&
                       is_hex(entry.substr(colon + 1));
    if (!valid) {
      return reader.mismatch(kKey, fmt::format("\"<file>:<{} hexadecimal digits>\" as element {} (which is {})",
                                               kHashDigits, i, quote(entry)));
    }
    hashes.emplace_back(entry);
  }
  return hashes;
}

Result<void> check_dimensions(MetadataReader& reader, const Dimensions& dimensions) {
  const auto u32 = [](int32_t value) { return static_cast<uint32_t>(value); };
  KIPP_TRY(reader.expect("qwen3.block_count", u32(dimensions.num_layers)));
  KIPP_TRY(reader.expect("qwen3.context_length", u32(dimensions.context)));
  KIPP_TRY(reader.expect("qwen3.embedding_length", u32(dimensions.hidden)));
  KIPP_TRY(reader.expect("qwen3.feed_forward_length", u32(dimensions.ffn)));
  KIPP_TRY(reader.expect("qwen3.attention.head_count", u32(dimensions.num_query_heads)));
  KIPP_TRY(reader.expect("qwen3.attention.head_count_kv", u32(dimensions.num_kv_heads)));
  KIPP_TRY(reader.expect("qwen3.attention.key_length", u32(dimensions.head_dim)));
  KIPP_TRY(reader.expect("qwen3.attention.value_length", u32(dimensions.head_dim)));
  KIPP_TRY(reader.expect("qwen3.vocab_size", u32(dimensions.vocab)));
  KIPP_TRY(reader.expect("qwen3.rope.freq_base", dimensions.rope_theta));
  return reader.expect("qwen3.attention.layer_norm_rms_epsilon", dimensions.rms_norm_epsilon);
}

Result<void> bind_tokens(MetadataReader& reader, ArtifactInfo& info) {
  const bool is_base = info.checkpoint->variant == Variant::kBase;
  KIPP_TRY(reader.expect("tokenizer.ggml.model", std::string_view("gpt2")));
  KIPP_TRY(reader.expect("tokenizer.ggml.pre", std::string_view("qwen2")));
  KIPP_TRY(reader.expect("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(is_base ? kEndOfText : kImEnd)));
  KIPP_TRY(reader.expect("tokenizer.ggml.padding_token_id", static_cast<uint32_t>(kEndOfText)));
  KIPP_TRY(reader.expect("tokenizer.ggml.add_bos_token", false));
  KIPP_ASSIGN(info.isolates_think_tokens, reader.boolean("kipp.tokenizer.isolates_think_tokens"));

  constexpr std::string_view kStop = "kipp.stop_token_ids";
  KIPP_ASSIGN(const auto found, reader.u32s(kStop, kMaxStopTokens));
  const std::span<const int32_t> expected =
      is_base ? std::span<const int32_t>(kBaseStopTokens) : std::span<const int32_t>(kChatStopTokens);
  info.stop_token_ids.assign(found.begin(), found.end());
  if (!std::equal(expected.begin(), expected.end(), info.stop_token_ids.begin(), info.stop_token_ids.end())) {
    const auto list = [](const auto& ids) { return fmt::format("[{}]", fmt::join(ids, ", ")); };
    return artifact_error(kStop, list(expected), list(found), reader.offset_of(kStop));
  }
  if (seeded(Fault::kStopTokenMissed)) info.stop_token_ids.resize(1);
  return {};
}

Result<void> bind_chat_template(MetadataReader& reader, ArtifactInfo& info) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  if (!reader.contains(kKey)) {
    return {};
  }
  if (info.synthetic) {
    return reader.mismatch(kKey, "no chat template in a synthetic twin");
  }
  KIPP_ASSIGN(info.chat_template, reader.string(kKey));
  return {};
}

Result<SamplingDefaults> bind_sampling(MetadataReader& reader) {
  constexpr std::string_view kTemperature = "kipp.sampling.temperature";
  constexpr std::string_view kTopK = "kipp.sampling.top_k";
  constexpr std::string_view kTopP = "kipp.sampling.top_p";
  SamplingDefaults sampling;
  if (reader.contains(kTemperature)) {
    KIPP_ASSIGN(sampling.temperature, reader.f32(kTemperature));
    if (!std::isfinite(*sampling.temperature) || *sampling.temperature < 0) {
      return reader.mismatch(kTemperature, "a finite f32 of at least 0");
    }
  }
  if (reader.contains(kTopK)) {
    KIPP_ASSIGN(sampling.top_k, reader.u32(kTopK));
    if (*sampling.top_k > static_cast<uint32_t>(kVocabSize)) {
      return reader.mismatch(kTopK, fmt::format("a u32 of at most {}", kVocabSize));
    }
  }
  if (reader.contains(kTopP)) {
    KIPP_ASSIGN(sampling.top_p, reader.f32(kTopP));
    if (!(*sampling.top_p > 0 && *sampling.top_p <= 1)) {
      return reader.mismatch(kTopP, "an f32 above 0 and at most 1");
    }
  }
  return sampling;
}

}  // namespace

Result<ArtifactInfo> bind_metadata(MetadataReader& reader, ModelFile::Options options) {
  ArtifactInfo info;
  // First, so that a file of another model or tool is refused by its architecture and not by a key that it lacks.
  KIPP_TRY(check_architecture(reader));
  KIPP_TRY(reader.expect("kipp.format_version", kFormatVersion));
  KIPP_TRY(reader.expect("general.alignment", kArtifactAlignment));
  KIPP_ASSIGN(info.checkpoint, find_entry(reader));
  KIPP_TRY(bind_source(reader, options.allow_synthetic, info));
  KIPP_ASSIGN(info.source_sha256, bind_source_hashes(reader));
  KIPP_ASSIGN(info.scheme, bind_scheme(reader));
  KIPP_TRY(check_dimensions(reader, info.dimensions));
  KIPP_TRY(bind_tokens(reader, info));
  KIPP_TRY(bind_chat_template(reader, info));
  KIPP_ASSIGN(info.sampling, bind_sampling(reader));
  return info;
}

}  // namespace kipp::gguf

namespace kipp {

const char* scheme_name(QuantScheme scheme) {
  for (const auto& facts : gguf::kSchemes) {
    if (facts.scheme == scheme) {
      return facts.name.data();
    }
  }
  return "";
}

}  // namespace kipp
