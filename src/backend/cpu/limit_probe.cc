// Names for the rates of probe.h.
#include "backend/cpu/limit_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "backend/cpu/isa.h"
#include "backend/cpu/probe.h"
#include "backend/host/host_backend.h"

namespace kipp {
namespace {

class CpuLimitProbe final : public LimitProbe {
 public:
  CpuLimitProbe(cpu::Probe probe, MachineFacts facts) : probe_(std::move(probe)), facts_(std::move(facts)) {}

  const MachineFacts& facts() const override { return facts_; }
  Result<uint64_t> bytes_in_use() const override { return uint64_t{0}; }

  Result<LimitRates> measure() const override {
    KIPP_ASSIGN(const cpu::ProbeRates rates, probe_.measure());
    LimitRates limits{.reads = {{"memory", "memory", rates.read_memory}, {"mapped", "mapped pages", rates.read_mapped}},
                      .products = {{"fp32", "FP32", rates.fp32},
                                   {"bf16_dot", "vdpbf16ps", rates.bf16_dot},
                                   {"bf16_tile", "TDPBF16PS", rates.bf16_tile},
                                   {"int8", "vpdpbusd", rates.int8}},
                      .matrix = 0};
    const auto matrix = std::ranges::find(limits.products, cpu::matrix_rate(rates).instruction, &LimitRate::name);
    limits.matrix = static_cast<size_t>(matrix - limits.products.begin());
    return limits;
  }

 private:
  cpu::Probe probe_;
  MachineFacts facts_;
};

}  // namespace

Result<std::unique_ptr<LimitProbe>> create_cpu_probe(const BackendOptions& options,
                                                     std::span<const std::byte> artifact) {
  const char* variable = std::getenv("KIPP_CPU_ISA");
  const std::string_view forced = variable == nullptr ? "" : variable;
  KIPP_ASSIGN(const cpu::Kernels* kernels, cpu::choose_kernels(options.isa.empty() ? forced : options.isa));
  KIPP_ASSIGN(const int32_t num_threads, host::choose_threads("probe", options));
  KIPP_ASSIGN(cpu::Probe probe, cpu::Probe::create(*kernels, num_threads, artifact));
  MachineFacts facts{.fields = Json::object({{"isa", Json::string(std::string(kernels->isa))},
                                             {"threads", Json::number(int64_t{num_threads})}}),
                     .words = fmt::format("instruction set {}, {} threads", kernels->isa, num_threads),
                     .has_memory = false,
                     .probe_bytes = probe.memory_bytes(),
                     .mapped_bytes = probe.mapped_bytes()};
  return std::make_unique<CpuLimitProbe>(std::move(probe), std::move(facts));
}

}  // namespace kipp
