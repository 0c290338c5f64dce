// What GET /metrics answers. Names that begin with "vllm:" mean what they mean in vLLM, whose dashboards and routers
// read them; what is Kipp's own begins with "kipp_". docs/server.md lists them all.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "server/api/transaction.h"
#include "server/http/http_server.h"
#include "server/metrics/text_page.h"
#include "server/openai/answers.h"
#include "server/service/generation_service.h"

namespace kipp::api {

struct MetricsSources {
  std::string model;  // the first of its names
  openai::BuildInfo build;
  ServiceStats service;
  const ServiceMetrics& requests;
  http::Statistics http;
  std::map<RefusalCounts::Key, uint64_t> refusals;
};

std::string metrics_page(const MetricsSources& sources);

}  // namespace kipp::api
