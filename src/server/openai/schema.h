// Fields of JSON objects as data: name, type, range and what they do. The same table checks a request, words the
// refusal and describes the field in the OpenAPI document, so that the three cannot disagree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "server/openai/api_error.h"

namespace kipp::openai {

struct Field;

inline constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

// What a value must be. Made by the functions below.
struct Type {
  enum class Kind : uint8_t { kAny, kBoolean, kInteger, kNumber, kString, kTokenId, kArray, kMap, kObject, kOneOf };
  Kind kind = Kind::kAny;
  int64_t least = 0;                           // kInteger
  uint64_t most = 0;                           // kInteger
  double low = 0.0;                            // kNumber
  double high = 0.0;                           // kNumber; infinite: a 32-bit float's limit
  bool above_low = false;                      // kNumber: low itself is out
  size_t min_size = 0;                         // characters of a string, items of an array, members of a map
  size_t max_size = kNoLimit;                  // the same
  std::vector<std::string> values = {};        // kString: these alone, if there are any
  bool id_keys = false;                        // kMap: keys are token ids
  std::vector<Type> parts = {};                // kArray, kMap: that of the items; kOneOf: the alternatives
  const std::vector<Field>* fields = nullptr;  // kObject
  std::string label = {};                      // what a refusal expects, where that says more than the type
};

Type any_value();
Type boolean();
Type integer(int64_t least, uint64_t most);
Type number(double low, double high);  // a 32-bit float; high may be infinite
Type number_above(double low);
Type string(size_t min_size = 0, size_t max_size = kNoLimit);
Type choice(std::vector<std::string> values);
Type token_id();
Type array(Type item, size_t min_size = 0, size_t max_size = kNoLimit);
Type map(Type value, size_t max_size = kNoLimit);
Type map_of_ids(Type value, size_t max_size);
Type object(const std::vector<Field>& fields);  // which must outlive the type
Type one_of(std::vector<Type> alternatives);    // told apart by kind, arrays by the kind of their first item
Type labelled(Type type, std::string label);

struct Field {
  std::string name;
  Type type = {};
  std::string text = {};          // what it does: Markdown
  bool required = false;          // else null and absent are the same
  Json standard = {};             // what absent stands for; null: see the text
  bool supported = true;          // false: a field of the official schema that Kipp lacks
  std::vector<Json> passes = {};  // values of an unsupported field that ask for nothing, besides null
};

// What depends on the server and not on the request.
struct Rules {
  int32_t num_tokens = 0;  // ids from here on are padding rows or out of range
  bool lenient = false;    // unknown fields are no error
};

// Where a value stands: the nodes live on the stack of whoever descends.
struct Path {
  const Path* parent = nullptr;
  std::string_view key = {};
  size_t index = 0;
  bool is_index = false;

  Path member(std::string_view name) const { return {.parent = this, .key = name}; }
  Path item(size_t i) const { return {.parent = this, .index = i, .is_index = true}; }
};
// "messages[2].role"; empty for the root. Long keys are cut.
std::string path_text(const Path& path);

// 400 naming the first field in the table's order that is wrong, else the first that is not in the table.
ApiResult<void> check(const Json& value, const Type& type, const Path& path, const Rules& rules);
// 400 for a value that is not what it should be.
tl::unexpected<ApiError> wrong_value(const Path& path, std::string_view expected, std::string_view found);

// The value without what check() passes over in a lenient server.
Json without_unknown_fields(const Json& value, const Type& type);

std::string expected_text(const Type& type, const Rules& rules);
// The value for a message: short texts and numbers themselves, else its kind; "nothing" for nullptr.
std::string found_text(const Json* value);
// At most max_bytes of it, cut between characters.
std::string_view clipped(std::string_view text, size_t max_bytes);
// Characters of valid UTF-8.
size_t num_characters(std::string_view text);

// Fields of a Target, each with the way its value goes there. In a table's order, so that a later field may override.
template <typename Target>
class FieldTable {
 public:
  using Store = std::function<void(const Json& value, Target& target)>;  // the value has passed check(); never null

  FieldTable& add(Field field, Store store = {}) {
    fields_.push_back(std::move(field));
    stores_.push_back(std::move(store));
    return *this;
  }
  // The fields of a part of the target.
  template <typename Part>
  FieldTable& include(const FieldTable<Part>& table, Part Target::* part) {
    for (size_t i = 0; i < table.fields().size(); ++i) {
      const auto& store = table.store_of(i);
      add(table.fields()[i],
          !store ? Store() : Store([store, part](const Json& value, Target& target) { store(value, target.*part); }));
    }
    return *this;
  }

  const std::vector<Field>& fields() const { return fields_; }
  const Store& store_of(size_t field_idx) const { return stores_[field_idx]; }

  void store(const Json& object, Target& target) const {
    for (size_t i = 0; i < fields_.size(); ++i) {
      const Json* value = stores_[i] ? object.find_value(fields_[i].name) : nullptr;
      if (value != nullptr) {
        stores_[i](*value, target);
      }
    }
  }

 private:
  std::vector<Field> fields_;
  std::vector<Store> stores_;  // [fields_]
};

}  // namespace kipp::openai
