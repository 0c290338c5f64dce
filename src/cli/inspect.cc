// `kipp inspect`: what an artifact is, without loading it.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "base/json.h"
#include "base/json_values.h"
#include "base/sha256.h"
#include "cli/commands.h"
#include "cli/gate_records.h"
#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/sampling_flags.h"
#include "cli/units.h"

namespace kipp::cli {
namespace {

struct InspectFlags {
  ModelFlags model;
  bool hash = false;
  bool json = false;
};

// What both forms of the report say beyond ArtifactInfo.
struct Facts {
  std::string path;
  uint64_t file_bytes = 0;
  uint64_t weight_bytes = 0;
  int64_t num_parameters = 0;
  int64_t kv_bytes_per_position = 0;  // K and V of all layers in BF16
  std::string header_sha256;
  std::string file_sha256;  // empty unless asked for
  std::vector<GateRecord> records;
};

uint64_t weight_bytes(const ModelWeights& weights, bool tied_head) {
  uint64_t bytes = weights.token_embedding.bytes + weights.output_norm.bytes;
  bytes += tied_head ? 0 : weights.output_head.bytes;
  for (const LayerWeights& layer : weights.layers) {
    for (const WeightView& view : {layer.attention_norm, layer.query_projection, layer.key_projection,
                                   layer.value_projection, layer.query_norm, layer.key_norm, layer.output_projection,
                                   layer.ffn_norm, layer.gate_projection, layer.up_projection, layer.down_projection}) {
      bytes += view.bytes;
    }
  }
  return bytes;
}

// Empty after an interrupt.
std::string hash_of(std::span<const std::byte> bytes) {
  constexpr size_t kPiece = 16U << 20;
  Progress progress("sha256", bytes.size() >> 20, "MiB");
  Sha256 hash;
  for (size_t done = 0; done < bytes.size(); done += kPiece) {
    if (interrupted()) {
      return {};
    }
    progress.update(done >> 20);
    hash.update(bytes.subspan(done, std::min(kPiece, bytes.size() - done)));
  }
  return fmt::format("{:02x}", fmt::join(hash.finish(), ""));
}

Facts facts_of(const ModelFile& file, bool hash) {
  const Dimensions& dimensions = file.info().dimensions;
  Facts facts;
  facts.path = file.path().string();
  facts.file_bytes = file.bytes().size();
  facts.weight_bytes = weight_bytes(file.weights(), dimensions.tied_head);
  facts.num_parameters = num_parameters(dimensions);
  facts.kv_bytes_per_position = int64_t{dimensions.num_layers} * 2 * dimensions.kv_width() * 2;
  facts.header_sha256 = file.header_sha256();
  facts.records = records_of_artifact(facts.header_sha256);
  if (hash) {
    facts.file_sha256 = hash_of(file.bytes());
  }
  return facts;
}

std::string sampling_text(const SamplingDefaults& recorded) {
  const SamplingParams params = recorded_sampling(recorded);
  const bool any = recorded.temperature || recorded.top_k || recorded.top_p;
  return fmt::format("temperature {}, top_k {}, top_p {} ({})", params.temperature, params.top_k, params.top_p,
                     any ? "recorded" : "nothing recorded");
}

std::string gates_text(const Facts& facts, const ArtifactInfo& info) {
  std::string text;
  for (const GateRecord& record : facts.records) {
    text += fmt::format("gates:         {}\n", record_text(record));
  }
  if (!text.empty()) {
    return text;
  }
  text = "gates:         no record of this artifact\n";
  for (const GateRecord& record : records_of(info.checkpoint->id)) {
    text += fmt::format("               {} {}\n", record.synthetic ? "a synthetic twin," : "another artifact,",
                        record_text(record));
  }
  return text;
}

std::string report(const ModelFile& file, const Facts& facts) {
  const ArtifactInfo& info = file.info();
  const Dimensions& d = info.dimensions;
  std::string text = fmt::format(
      "artifact:      {}\n"
      "checkpoint:    {} ({})\n"
      "source:        {} at {}{}\n"
      "weights:       {}, {} parameters\n"
      "shape:         {} layers, hidden {}, ffn {}, {} query heads, {} KV heads of {}, {} head\n"
      "size:          {} ({} bytes), of it weights {}\n"
      "context:       {} positions; KV {} a position, {} for all\n"
      "tokenizer:     {} tokens of {} rows; stop tokens {}\n"
      "sampling:      {}\n"
      "chat template: {}\n"
      "header sha256: {}\n",
      facts.path, info.checkpoint->id, variant_name(info.checkpoint->variant), info.source_repository,
      info.source_revision, info.synthetic ? " (synthetic: weights drawn from a seed)" : "", scheme_name(info.scheme),
      count_text(facts.num_parameters), d.num_layers, d.hidden, d.ffn, d.num_query_heads, d.num_kv_heads, d.head_dim,
      d.tied_head ? "tied" : "untied", bytes_text(facts.file_bytes), facts.file_bytes, bytes_text(facts.weight_bytes),
      d.context, bytes_text(static_cast<uint64_t>(facts.kv_bytes_per_position)),
      bytes_text(static_cast<uint64_t>(facts.kv_bytes_per_position * d.context)), info.num_tokens(), d.vocab,
      fmt::join(info.stop_token_ids, ", "), sampling_text(info.sampling),
      info.chat_template ? "recorded (never executed)" : "none recorded", facts.header_sha256);
  if (!facts.file_sha256.empty()) {
    text += fmt::format("file sha256:   {}\n", facts.file_sha256);
  }
  for (const std::string& source : info.source_sha256) {
    text += fmt::format("source file:   {}\n", source);
  }
  return text + gates_text(facts, info);
}

Json optional_json(const auto& value) {
  return value ? Json::number_literal(fmt::format("{}", *value)) : Json();
}

Json dimensions_json(const Dimensions& d) {
  const auto integer = [](int32_t value) { return Json::number(int64_t{value}); };
  return Json::object({{"layers", integer(d.num_layers)},
                       {"hidden", integer(d.hidden)},
                       {"ffn", integer(d.ffn)},
                       {"query_heads", integer(d.num_query_heads)},
                       {"kv_heads", integer(d.num_kv_heads)},
                       {"head_dim", integer(d.head_dim)},
                       {"vocab", integer(d.vocab)},
                       {"context", integer(d.context)},
                       {"rope_theta", Json::number(static_cast<double>(d.rope_theta))},
                       {"tied_head", Json::boolean(d.tied_head)}});
}

Json report_json(const ModelFile& file, const Facts& facts) {
  const ArtifactInfo& info = file.info();
  const auto number = [](auto value) { return Json::number(static_cast<int64_t>(value)); };
  return Json::object({{"path", Json::string(facts.path)},
                       {"checkpoint", Json::string(std::string(info.checkpoint->id))},
                       {"variant", Json::string(std::string(variant_name(info.checkpoint->variant)))},
                       {"repository", Json::string(info.source_repository)},
                       {"revision", Json::string(info.source_revision)},
                       {"synthetic", Json::boolean(info.synthetic)},
                       {"scheme", Json::string(scheme_name(info.scheme))},
                       {"parameters", number(facts.num_parameters)},
                       {"dimensions", dimensions_json(info.dimensions)},
                       {"file_bytes", number(facts.file_bytes)},
                       {"weight_bytes", number(facts.weight_bytes)},
                       {"kv_bytes_per_position", number(facts.kv_bytes_per_position)},
                       {"tokens", number(info.num_tokens())},
                       {"stop_token_ids", ids_json(info.stop_token_ids)},
                       {"sampling", Json::object({{"temperature", optional_json(info.sampling.temperature)},
                                                  {"top_k", optional_json(info.sampling.top_k)},
                                                  {"top_p", optional_json(info.sampling.top_p)}})},
                       {"chat_template", Json::boolean(info.chat_template.has_value())},
                       {"source_sha256", array_json(info.source_sha256, Json::string)},
                       {"header_sha256", Json::string(facts.header_sha256)},
                       {"file_sha256", facts.file_sha256.empty() ? Json() : Json::string(facts.file_sha256)},
                       {"gates", array_json(facts.records, record_json)}});
}

ExitCode inspect(const InspectFlags& flags) {
  const auto path = artifact_path(flags.model);
  if (!path) {
    return fail(ExitCode::kModel, path.error());
  }
  const auto file = ModelFile::open(*path, {.allow_synthetic = true});  // looking is not using
  if (!file) {
    return fail(ExitCode::kModel, file.error());
  }
  const Facts facts = facts_of(*file, flags.hash);
  if (interrupted()) {
    return ExitCode::kInterrupted;
  }
  const std::string text = flags.json ? write_json(report_json(*file, facts)) + "\n" : report(*file, facts);
  return print_result(text);
}

constexpr std::string_view kExamples =
    "  kipp inspect -m models/kipp-kipp-demo-bf16.gguf\n"
    "  kipp inspect -m kipp-demo --hash --json\n";

}  // namespace

void add_inspect_command(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command = app.add_subcommand("inspect", "What an artifact is: source, sizes, hashes, gates");
  const auto flags = std::make_shared<InspectFlags>();
  add_name_flags(*command, flags->model);
  command->add_flag("--hash", flags->hash, "Also the sha256 of the whole file, which reads all of it");
  command->add_flag("--json", flags->json, "Print the report as JSON");
  command->footer(help_footer(kExamples));
  command->callback([flags, &exit_code] { exit_code = inspect(*flags); });
}

}  // namespace kipp::cli
