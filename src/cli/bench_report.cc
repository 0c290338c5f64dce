// Turns seconds into rates, and rates into shares of what the probes around them measured.
#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/json_values.h"
#include "cli/units.h"
#include "kipp/version.h"

namespace kipp::cli {
namespace {

// What one case reached, each with one value a repetition.
struct Figures {
  Spread tokens_per_second;
  Spread ms;                   // of a step; of a whole prompt
  double work;                 // bytes that a step must read; operations of a prompt
  std::vector<Spread> shares;  // decode: of each of LimitRates::reads; a prompt: of the matrix rate alone
};

// Of every probe of the case.
std::vector<double> rates_of(const CaseResult& result, const std::function<double(const LimitRates&)>& rate) {
  std::vector<double> rates;
  std::ranges::transform(result.probes, std::back_inserter(rates), rate);
  return rates;
}

const LimitRate& matrix_rate(const LimitRates& limits) {
  return limits.products[limits.matrix];
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
  if (!measured.decode) {
    figures.shares = {
        shares(work_per_second, rates_of(result, [](const auto& one) { return matrix_rate(one).per_second; }))};
    return figures;
  }
  for (size_t i = 0; i < result.probes.front().reads.size(); ++i) {
    figures.shares.push_back(
        shares(work_per_second, rates_of(result, [i](const auto& one) { return one.reads[i].per_second; })));
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

Json probe_json(const LimitRates& limits) {
  Json json = Json::object();
  for (const LimitRate& rate : limits.reads) {
    json.set(fmt::format("read_{}_bytes_per_second", rate.key), Json::number(rate.per_second));
  }
  for (const LimitRate& rate : limits.products) {
    json.set(fmt::format("{}_operations_per_second", rate.key), Json::number(rate.per_second));
  }
  return json;
}

Json decode_json(const CaseResult& result, const Figures& figures, bool draws) {
  const BenchCase& measured = result.measured;
  Json json = Json::object({{"kind", Json::string("decode")},
                            {"depth", integer(static_cast<uint64_t>(measured.depth))},
                            {"batch", integer(static_cast<uint64_t>(measured.batch))},
                            {"steps", integer(static_cast<uint64_t>(measured.tokens))},
                            {"draws", Json::string(draws ? "greedy" : "none")},
                            {"bytes_per_step", Json::number(figures.work)},
                            {"tokens_per_second", spread_json(figures.tokens_per_second)},
                            {"ms_per_step", spread_json(figures.ms)}});
  for (size_t i = 0; i < figures.shares.size(); ++i) {
    const std::string_view key = result.probes.front().reads[i].key;
    json.set(fmt::format("share_of_{}_reads", key), spread_json(figures.shares[i]));
  }
  return json;
}

Json prefill_json(const CaseResult& result, const Figures& figures) {
  const BenchCase& measured = result.measured;
  return Json::object({{"kind", Json::string("prefill")},
                       {"tokens", integer(static_cast<uint64_t>(measured.tokens))},
                       {"operations", Json::number(figures.work)},
                       {"operations_per_token", Json::number(figures.work / measured.tokens)},
                       {"tokens_per_second", spread_json(figures.tokens_per_second)},
                       {"ms", spread_json(figures.ms)},
                       {"matrix_instruction", Json::string(std::string(matrix_rate(result.probes.front()).name))},
                       {"share_of_matrix_rate", spread_json(figures.shares.front())}});
}

Json case_json(const CaseResult& result, const BenchReport& report) {
  const Figures figures = figures_of(result, report.cost);
  Json json = result.measured.decode ? decode_json(result, figures, report.plan.draw) : prefill_json(result, figures);
  json.set("probes", array_json(result.probes, probe_json));
  return json;
}

// Of the host's.
uint64_t other_bytes(const BenchMemory& memory) {
  const uint64_t kv_bytes = memory.device_bytes > 0 ? 0 : memory.kv_bytes;
  return memory.besides_file_bytes - std::min(memory.besides_file_bytes, memory.copied_bytes + kv_bytes);
}

Json memory_json(const BenchMemory& memory) {
  Json json = Json::object({{"file_resident_bytes", integer(memory.file.resident_bytes)},
                            {"file_huge_page_bytes", integer(memory.file.huge_bytes)},
                            {"peak_besides_file_bytes", integer(memory.besides_file_bytes)},
                            {"copied_bytes", integer(memory.copied_bytes)},
                            {"kv_bytes", integer(memory.kv_bytes)},
                            {"other_bytes", integer(other_bytes(memory))}});
  if (memory.device_bytes > 0) {
    json.set("device_bytes_in_use", integer(memory.device_bytes));
  }
  return json;
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

// Of the last way of reading, by which the weights come, then of the others.
std::string decode_share_text(const Figures& figures, const std::vector<LimitRate>& reads) {
  std::string text = fmt::format("{} of reading {}", percent(figures.shares.back()), reads.back().name);
  for (size_t i = 0; i + 1 < reads.size(); ++i) {
    text += fmt::format(", {:.0f} % of {}", figures.shares[i].median() * 100, reads[i].name);
  }
  return text;
}

std::string case_text(const CaseResult& result, const ModelCost& cost) {
  const Figures figures = figures_of(result, cost);
  const Spread& rate = figures.tokens_per_second;
  const std::string rates = fmt::format("{:.1f} ({:.1f}-{:.1f})", rate.median(), rate.min(), rate.max());
  const LimitRates& limits = result.probes.front();
  const std::string limit = result.measured.decode
                                ? decode_share_text(figures, limits.reads)
                                : fmt::format("{} of {}", percent(figures.shares.front()), matrix_rate(limits).name);
  return fmt::format("{:<26} {:>28} {:>10.2f}  {}\n", result.measured.name(), rates, figures.ms.median(), limit);
}

std::string rate_list(const std::vector<LimitRate>& rates, std::string_view unit) {
  std::string text;
  for (const LimitRate& rate : rates) {
    if (rate.per_second > 0) {
      text += fmt::format("{}{} {:.1f}{}", text.empty() ? "" : ", ", rate.name, rate.per_second / 1e9, unit);
    }
  }
  return text;
}

// Medians over every probe of the run.
std::string limits_text(const std::vector<CaseResult>& cases) {
  const auto medians = [&](std::vector<LimitRate> LimitRates::* kind) {
    std::vector<LimitRate> all = cases.front().probes.front().*kind;
    for (size_t i = 0; i < all.size(); ++i) {
      Spread found;
      for (const CaseResult& one : cases) {
        const auto rates = rates_of(one, [&](const LimitRates& limits) { return (limits.*kind)[i].per_second; });
        found.values.insert(found.values.end(), rates.begin(), rates.end());
      }
      all[i].per_second = found.median();
    }
    return all;
  };
  return fmt::format("limits (medians): reading {}; {} G operations/s\n",
                     rate_list(medians(&LimitRates::reads), " GB/s"), rate_list(medians(&LimitRates::products), ""));
}

Json start_json(const StartTimes& start) {
  return Json::object({{"prompt_tokens", Json::number(int64_t{kStartTokens})},
                       {"open_ms", spread_json(start.open_ms)},
                       {"first_token_ms", spread_json(start.first_token_ms)}});
}

std::string start_text(const StartTimes& start) {
  return fmt::format(
      "opening: {:.1f} ms ({:.1f}-{:.1f}); to the first token of a {}-token prompt {:.1f} ms ({:.1f}-{:.1f})\n",
      start.open_ms.median(), start.open_ms.min(), start.open_ms.max(), kStartTokens, start.first_token_ms.median(),
      start.first_token_ms.min(), start.first_token_ms.max());
}

std::string memory_text(const BenchMemory& memory) {
  const std::string device =
      memory.device_bytes > 0 ? fmt::format("; in use on the device {}", bytes_text(memory.device_bytes)) : "";
  return fmt::format("memory: {} of the file ({} by huge pages), copied {}, KV {}, other {}{}\n",
                     bytes_text(memory.file.resident_bytes), bytes_text(memory.file.huge_bytes),
                     bytes_text(memory.copied_bytes), bytes_text(memory.kv_bytes), bytes_text(other_bytes(memory)),
                     device);
}

}  // namespace

Json bench_json(const BenchReport& report) {
  const ArtifactInfo& info = report.file.info();
  const MachineFacts& machine = report.machine;
  Json json = Json::object({{"kipp", Json::string(kVersion)},
                            {"model", Json::string(report.file.path().filename().string())},
                            {"checkpoint", Json::string(std::string(info.checkpoint->id))},
                            {"scheme", Json::string(scheme_name(info.scheme))},
                            {"synthetic", Json::boolean(info.synthetic)},
                            {"header_sha256", Json::string(report.file.header_sha256())},
                            {"backend", Json::string(report.backend)}});
  for (const auto& [key, value] : machine.fields.members()) {
    json.set(key, value);
  }
  Json probe = Json::object({{"memory_bytes", integer(machine.probe_bytes)}});
  if (machine.mapped_bytes > 0) {
    probe.set("mapped_bytes", integer(machine.mapped_bytes));
  }
  json.set("repetitions", integer(static_cast<uint64_t>(report.plan.repetitions)));
  json.set("seed", Json::number_literal(std::to_string(report.plan.seed)));
  json.set("cost", cost_json(report.cost));
  json.set("probe", std::move(probe));
  json.set("cases", array_json(report.cases, [&](const CaseResult& one) { return case_json(one, report); }));
  json.set("memory", memory_json(report.memory));
  json.set("start", report.start ? start_json(*report.start) : Json());
  return json;
}

std::string bench_text(const BenchReport& report) {
  const ArtifactInfo& info = report.file.info();
  std::string text = fmt::format("{} ({}, {}), backend {}, {}, {} repetitions\n",
                                 report.file.path().filename().string(), info.checkpoint->id, scheme_name(info.scheme),
                                 report.backend, report.machine.words, report.plan.repetitions);
  text += fmt::format("a step reads {} of weights, and {} of KV for each position{}\n\n",
                      bytes_text(static_cast<uint64_t>(report.cost.weight_bytes)),
                      bytes_text(static_cast<uint64_t>(report.cost.kv_bytes_per_position)),
                      report.plan.draw ? "; after each, every sequence draws a token greedily" : "");
  text += fmt::format("{:<26} {:>28} {:>10}  {}\n", "", "tokens/s: median (min-max)", "ms", "share of the limit");
  for (const CaseResult& one : report.cases) {
    text += case_text(one, report.cost);
  }
  text += "\n" + limits_text(report.cases);
  text += report.start ? start_text(*report.start) : "";
  return text + memory_text(report.memory);
}

}  // namespace kipp::cli
