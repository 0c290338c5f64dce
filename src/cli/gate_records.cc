// The generated table and ways to look at it.
#include "cli/gate_records.h"

#include <algorithm>
#include <array>
#include <iterator>

#include <fmt/format.h>

namespace kipp::cli {
namespace {

constexpr auto kRecords = std::to_array<GateRecord>({
#include "gate_records.inc"
});

template <typename Predicate>
std::vector<GateRecord> records_where(Predicate predicate) {
  std::vector<GateRecord> found;
  std::ranges::copy_if(kRecords, std::back_inserter(found), predicate);
  return found;
}

Json text(std::string_view value) {
  return Json::string(std::string(value));
}

}  // namespace

std::vector<GateRecord> records_of(std::string_view checkpoint) {
  return records_where([&](const GateRecord& record) { return record.checkpoint == checkpoint; });
}

std::vector<GateRecord> records_of_artifact(const std::string& header_sha256) {
  return records_where([&](const GateRecord& record) { return record.header_sha256 == header_sha256; });
}

std::string record_text(const GateRecord& record) {
  return fmt::format("{} {}: {} ({}) on {}, engine {}, {}", record.backend, record.scheme, record.verdict,
                     record.phases, record.processor, record.commit, record.utc.substr(0, 10));
}

Json record_json(const GateRecord& record) {
  return Json::object({{"checkpoint", text(record.checkpoint)},
                       {"scheme", text(record.scheme)},
                       {"backend", text(record.backend)},
                       {"verdict", text(record.verdict)},
                       {"phases", text(record.phases)},
                       {"repository", text(record.repository)},
                       {"synthetic", Json::boolean(record.synthetic)},
                       {"header_sha256", text(record.header_sha256)},
                       {"processor", text(record.processor)},
                       {"engine_commit", text(record.commit)},
                       {"utc", text(record.utc)}});
}

}  // namespace kipp::cli
