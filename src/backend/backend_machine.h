// What a backend runs on: whether weights move into memory of its own, and what that machine could do at most, measured
// beside the figures that are compared with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/json.h"
#include "kipp/error.h"

namespace kipp {

// Whether loading copies the weights into memory of a device: a copy of the file in the process is of no use then.
bool uploads_weights(std::string_view backend);

struct LimitRate {
  std::string_view key;   // in records: "memory", "bf16_tile"
  std::string_view name;  // for people: "memory", "TDPBF16PS"
  double per_second = 0;  // the best of a few passes; 0: not to be had here
};

struct LimitRates {
  std::vector<LimitRate> reads;     // bytes: the memory of KV; then the way by which weights are read, if it is another
  std::vector<LimitRate> products;  // operations, a product and a sum being two
  size_t matrix = 0;                // of `products`: the one for a share of it; the fastest with BF16 weights
};

struct MachineFacts {
  Json fields;          // an object for a record
  std::string words;    // the same for people
  bool has_memory;      // of its own: weights and KV are not in the host's
  size_t probe_bytes;   // of memory that the probe takes and reads
  size_t mapped_bytes;  // of the artifact that it reads through its mapping; 0: none
};

// Its limits swing with other load and with temperature, so it measures beside each figure.
class LimitProbe {
 public:
  virtual ~LimitProbe() = default;

  virtual const MachineFacts& facts() const = 0;
  // Some tenths of a second. Errors: kCapacity (threads); those of the device.
  virtual Result<LimitRates> measure() const = 0;
  // Of memory of its own: what all its users have taken, the probe's part left out. Errors: those of the device.
  virtual Result<uint64_t> bytes_in_use() const = 0;
};

// The probe of the machine that the backend of this name runs on, with the same options. artifact: the model's file,
// which must outlive the probe. Errors: those of create_backend; kCapacity (memory).
Result<std::unique_ptr<LimitProbe>> create_limit_probe(std::string_view backend, const BackendOptions& options,
                                                       std::span<const std::byte> artifact);

}  // namespace kipp
