// Choosing the fault of a seeded-fault build; empty in every other.
#include "base/seeded_fault.h"

#ifdef KIPP_SEEDED_FAULTS

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace kipp {
namespace {

struct NamedFault {
  Fault fault;
  const char* name;
};

constexpr NamedFault kFaults[] = {
#define KIPP_NAMED_FAULT(enumerator, name, what) {Fault::enumerator, name},
    KIPP_SEEDED_FAULT_LIST(KIPP_NAMED_FAULT)
#undef KIPP_NAMED_FAULT
};

}  // namespace

Fault fault_named(const char* name) {
  if (name == nullptr) {
    return Fault::kNone;
  }
  for (const NamedFault& known : kFaults) {
    if (std::strcmp(known.name, name) == 0) {
      return known.fault;
    }
  }
  std::fprintf(stderr, "KIPP_SEEDED_FAULT: there is no fault \"%s\"; known faults:\n", name);
  for (const NamedFault& known : kFaults) {
    std::fprintf(stderr, "  %s\n", known.name);
  }
  std::abort();
}

const Fault kSeededFault = fault_named(std::getenv("KIPP_SEEDED_FAULT"));

}  // namespace kipp

#endif
