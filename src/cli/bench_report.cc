// Turns seconds into rates, and rates into shares of what the probes around them measured.
#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "cli/fields.h"
#include "cli/units.h"
#include "kipp/version.h"

namespace kipp::cli {
namespace {

// What one case reached, each with one value a repetition.
struct Figures {
  Spread tokens_per_second;
  Spread ms;            // of a step; of a whole prompt
  double work;          // bytes that a step must read; operations of a prompt
  Spread share;         // of the reads of mapped pages, or of the matrix rate
  Spread memory_share;  // of the reads of anonymous memory; empty for a prompt
};

std::vector<double> rates_of(const CaseResult& result, const std::function<double(const cpu::ProbeRates&)>& rate) {
  std::vector<double> rates;
  std::ranges::transform(result.probes, std::back_inserter(rates), rate);
  return rates;
}

Figures figures_of(const CaseResult& result, const ModelCost& cost) {
  const BenchCase& measured = result.measured;
  const int32_t steps = measured.decode ? measured.tokens : 1;
  Figures figures;
  figures.work = measured.decode ? decode_bytes(cost, measured.batch, measured.mean_context())
                                 : prefill_operations(cost, measured.tokens);
  std::vector<double> work_per_second;
  for (const double seconds : result.seconds) {
    figures.tokens_per_second.values.push_back(static_cast<double>(measured.num_tokens()) / seconds);
    figures.ms.values.push_back(seconds / steps * 1e3);
    work_per_second.push_back(figures.work * steps / seconds);
  }
  if (measured.decode) {
    figures.share = shares(work_per_second, rates_of(result, [](const auto& p) { return p.read_mapped; }));
    figures.memory_share = shares(work_per_second, rates_of(result, [](const auto& p) { return p.read_memory; }));
  } else {
    figures.share =
        shares(work_per_second, rates_of(result, [](const auto& p) { return matrix_rate(p).operations_per_second; }));
  }
  return figures;
}

Json integer(uint64_t value) {
  return Json::number(static_cast<int64_t>(value));
}

Json spread_json(const Spread& spread) {
  return Json::object({{"median", Json::number(spread.median())},
                       {"min", Json::number(spread.min())},
                       {"max", Json::number(spread.max())},
                       {"all", array_json(spread.values, [](double value) { return Json::number(value); })}});
}

Json probe_json(const cpu::ProbeRates& rates) {
  return Json::object({{"read_memory_bytes_per_second", Json::number(rates.read_memory)},
                       {"read_mapped_bytes_per_second", Json::number(rates.read_mapped)},
                       {"fp32_operations_per_second", Json::number(rates.fp32)},
                       {"bf16_dot_operations_per_second", Json::number(rates.bf16_dot)},
                       {"bf16_tile_operations_per_second", Json::number(rates.bf16_tile)},
                       {"int8_operations_per_second", Json::number(rates.int8)}});
}

Json case_json(const CaseResult& result, const ModelCost& cost) {
  const Figures figures = figures_of(result, cost);
  const BenchCase& measured = result.measured;
  Json json = Json::object({{"kind", Json::string(measured.decode ? "decode" : "prefill")}});
  if (measured.decode) {
    json.set("depth", integer(static_cast<uint64_t>(measured.depth)));
    json.set("batch", integer(static_cast<uint64_t>(measured.batch)));
    json.set("steps", integer(static_cast<uint64_t>(measured.tokens)));
    json.set("bytes_per_step", Json::number(figures.work));
    json.set("tokens_per_second", spread_json(figures.tokens_per_second));
    json.set("ms_per_step", spread_json(figures.ms));
    json.set("share_of_mapped_reads", spread_json(figures.share));
    json.set("share_of_memory_reads", spread_json(figures.memory_share));
  } else {
    json.set("tokens", integer(static_cast<uint64_t>(measured.tokens)));
    json.set("operations", Json::number(figures.work));
    json.set("operations_per_token", Json::number(figures.work / measured.tokens));
    json.set("tokens_per_second", spread_json(figures.tokens_per_second));
    json.set("ms", spread_json(figures.ms));
    json.set("matrix_instruction", Json::string(std::string(cpu::matrix_rate(result.probes.front()).instruction)));
    json.set("share_of_matrix_rate", spread_json(figures.share));
  }
  json.set("probes", array_json(result.probes, probe_json));
  return json;
}

uint64_t other_bytes(const BenchMemory& memory) {
  return memory.besides_file_bytes - std::min(memory.besides_file_bytes, memory.copied_bytes + memory.kv_bytes);
}

Json memory_json(const BenchMemory& memory) {
  return Json::object({{"file_resident_bytes", integer(memory.file.resident_bytes)},
                       {"file_huge_page_bytes", integer(memory.file.huge_bytes)},
                       {"peak_besides_file_bytes", integer(memory.besides_file_bytes)},
                       {"copied_bytes", integer(memory.copied_bytes)},
                       {"kv_bytes", integer(memory.kv_bytes)},
                       {"other_bytes", integer(other_bytes(memory))}});
}

Json cost_json(const ModelCost& cost) {
  return Json::object({{"projection_weights", Json::number(cost.projection_weights)},
                       {"head_weights", Json::number(cost.head_weights)},
                       {"weight_bytes", Json::number(cost.weight_bytes)},
                       {"embedding_row_bytes", Json::number(cost.embedding_row_bytes)},
                       {"kv_bytes_per_position", Json::number(cost.kv_bytes_per_position)}});
}

std::string percent(const Spread& share) {
  return fmt::format("{:.0f} % ({:.0f}-{:.0f})", share.median() * 100, share.min() * 100, share.max() * 100);
}

std::string case_text(const CaseResult& result, const ModelCost& cost) {
  const Figures figures = figures_of(result, cost);
  const Spread& rate = figures.tokens_per_second;
  const std::string rates = fmt::format("{:.1f} ({:.1f}-{:.1f})", rate.median(), rate.min(), rate.max());
  const std::string limit =
      result.measured.decode
          ? fmt::format("{} of reading mapped pages, {:.0f} % of memory", percent(figures.share),
                        figures.memory_share.median() * 100)
          : fmt::format("{} of {}", percent(figures.share), cpu::matrix_rate(result.probes.front()).instruction);
  return fmt::format("{:<26} {:>28} {:>10.2f}  {}\n", result.measured.name(), rates, figures.ms.median(), limit);
}

// Medians over every probe of the run.
std::string limits_text(const std::vector<CaseResult>& cases) {
  const auto median = [&](const std::function<double(const cpu::ProbeRates&)>& rate) {
    Spread all;
    for (const CaseResult& one : cases) {
      const auto rates = rates_of(one, rate);
      all.values.insert(all.values.end(), rates.begin(), rates.end());
    }
    return all.median() / 1e9;
  };
  std::string text =
      fmt::format("limits (medians): reading memory {:.1f} GB/s, mapped pages {:.1f} GB/s; FP32 {:.0f}",
                  median([](const auto& p) { return p.read_memory; }),
                  median([](const auto& p) { return p.read_mapped; }), median([](const auto& p) { return p.fp32; }));
  const std::pair<const char*, double> others[] = {{"vdpbf16ps", median([](const auto& p) { return p.bf16_dot; })},
                                                   {"TDPBF16PS", median([](const auto& p) { return p.bf16_tile; })},
                                                   {"vpdpbusd", median([](const auto& p) { return p.int8; })}};
  for (const auto& [name, rate] : others) {
    text += rate > 0 ? fmt::format(", {} {:.0f}", name, rate) : "";
  }
  return text + " G operations/s\n";
}

}  // namespace

Json bench_json(const BenchReport& report) {
  const ArtifactInfo& info = report.file.info();
  return Json::object(
      {{"kipp", Json::string(kVersion)},
       {"model", Json::string(report.file.path().filename().string())},
       {"checkpoint", Json::string(std::string(info.checkpoint->id))},
       {"scheme", Json::string(scheme_name(info.scheme))},
       {"synthetic", Json::boolean(info.synthetic)},
       {"header_sha256", Json::string(report.file.header_sha256())},
       {"backend", Json::string(report.backend)},
       {"isa", Json::string(std::string(report.isa))},
       {"threads", integer(static_cast<uint64_t>(report.num_threads))},
       {"repetitions", integer(static_cast<uint64_t>(report.plan.repetitions))},
       {"seed", Json::number_literal(std::to_string(report.plan.seed))},
       {"cost", cost_json(report.cost)},
       {"probe", Json::object({{"memory_bytes", integer(report.probe_memory_bytes)},
                               {"mapped_bytes", integer(report.probe_mapped_bytes)}})},
       {"cases", array_json(report.cases, [&](const CaseResult& one) { return case_json(one, report.cost); })},
       {"memory", memory_json(report.memory)},
       {"start", Json::object({{"prompt_tokens", Json::number(int64_t{kStartTokens})},
                               {"open_ms", spread_json(report.start.open_ms)},
                               {"first_token_ms", spread_json(report.start.first_token_ms)}})}});
}

std::string bench_text(const BenchReport& report) {
  const ArtifactInfo& info = report.file.info();
  std::string text = fmt::format("{} ({}, {}), backend {}, instruction set {}, {} threads, {} repetitions\n",
                                 report.file.path().filename().string(), info.checkpoint->id, scheme_name(info.scheme),
                                 report.backend, report.isa, report.num_threads, report.plan.repetitions);
  text += fmt::format("a step reads {} of weights, and {} of KV for each position\n\n",
                      bytes_text(static_cast<uint64_t>(report.cost.weight_bytes)),
                      bytes_text(static_cast<uint64_t>(report.cost.kv_bytes_per_position)));
  text += fmt::format("{:<26} {:>28} {:>10}  {}\n", "", "tokens/s: median (min-max)", "ms", "share of the limit");
  for (const CaseResult& one : report.cases) {
    text += case_text(one, report.cost);
  }
  text += "\n" + limits_text(report.cases);
  text += fmt::format(
      "opening: {:.1f} ms ({:.1f}-{:.1f}); to the first token of a {}-token prompt {:.1f} ms ({:.1f}-{:.1f})\n",
      report.start.open_ms.median(), report.start.open_ms.min(), report.start.open_ms.max(), kStartTokens,
      report.start.first_token_ms.median(), report.start.first_token_ms.min(), report.start.first_token_ms.max());
  text += fmt::format("memory: {} of the file ({} by huge pages), copied {}, KV {}, other {}\n",
                      bytes_text(report.memory.file.resident_bytes), bytes_text(report.memory.file.huge_bytes),
                      bytes_text(report.memory.copied_bytes), bytes_text(report.memory.kv_bytes),
                      bytes_text(other_bytes(report.memory)));
  return text;
}

}  // namespace kipp::cli
