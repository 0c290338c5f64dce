// The JSON parser: nlohmann's lexer and iterative SAX parser under an own handler that builds a Json and refuses what
// nlohmann lets pass (duplicate keys, any depth, text after a NUL byte). Contract in json.h.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/json.h"

namespace kipp {
namespace {

constexpr size_t kHardDepth = 1024;  // Json's destructor and the writers recurse this deep at most

// Reads the text and keeps in *num_read how far the lexer has come: the SAX events carry no positions.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, size_t* num_read) : at_(at), num_read_(num_read) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*num_read_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  size_t* num_read_;
};

// nlohmann's reason without its prefix ("[json.exception…] parse error at line 1, column 2: ") and without the token
// last read, which can be megabytes long and need not be UTF-8.
std::string plain_reason(std::string_view what) {
  const size_t reason = what.find("syntax error");
  if (reason == std::string_view::npos) {
    return "a number too large for a double";
  }
  what.remove_prefix(reason);
  return std::string(what.substr(0, what.find("; last read: '")));
}

class Builder {
 public:
  Builder(const JsonLimits& limits, const size_t* num_read)
      : max_depth_(std::min(limits.max_depth, kHardDepth)), max_values_(limits.max_values), num_read_(num_read) {}

  const std::string& reason() const { return reason_; }
  size_t position() const { return position_; }
  Json take() { return std::move(root_); }

  bool null() { return add(Json()); }
  bool boolean(bool value) { return add(Json::boolean(value)); }
  // Called for a leading minus only, so that a zero was written "-0".
  bool number_integer(int64_t value) { return add(value == 0 ? Json::number_literal("-0") : Json::number(value)); }
  bool number_unsigned(uint64_t value) { return add(Json::number_literal(std::to_string(value))); }
  bool number_float(double, std::string literal) {
    // nlohmann 3.11 writes the C locale's decimal point into the literal.
    constexpr std::string_view kOthers = "0123456789+-eE";
    std::replace_if(literal.begin(), literal.end(), [&](char c) { return kOthers.find(c) == kOthers.npos; }, '.');
    return add(Json::number_literal(std::move(literal)));
  }
  bool string(std::string& value) { return add(Json::string(std::move(value))); }
  bool binary(std::vector<uint8_t>&) { return false; }  // not in text

  bool start_array(size_t) { return open(false); }
  bool start_object(size_t) { return open(true); }
  bool end_array() {
    Json array = Json::array(std::move(open_.back().items));
    open_.pop_back();
    return store(std::move(array));
  }
  bool end_object() {
    Frame& frame = open_.back();
    if (!check_keys(frame)) {
      return false;
    }
    Json object = Json::object(std::move(frame.members));
    open_.pop_back();
    return store(std::move(object));
  }
  bool key(std::string& key) {
    open_.back().members.emplace_back().first = std::move(key);
    open_.back().key_ends.push_back(*num_read_);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) {
    return fail(*num_read_, plain_reason(error.what()));
  }

 private:
  struct Frame {
    bool is_object;
    std::vector<Json> items;
    std::vector<Json::Member> members;  // the last one's value is still to come
    std::vector<size_t> key_ends;       // bytes read when the key was complete
  };

  bool fail(size_t num_read, std::string reason) {
    position_ = num_read == 0 ? 0 : num_read - 1;
    reason_ = std::move(reason);
    return false;
  }

  bool open(bool is_object) {
    if (open_.size() >= max_depth_) {
      return fail(*num_read_, fmt::format("nested deeper than {} levels", max_depth_));
    }
    if (!count()) {
      return false;
    }
    open_.push_back(Frame{is_object, {}, {}, {}});
    return true;
  }

  bool count() {
    return ++num_values_ <= max_values_ || fail(*num_read_, fmt::format("more than {} values", max_values_));
  }

  bool add(Json value) { return count() && store(std::move(value)); }

  bool store(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_object) {
      open_.back().members.back().second = std::move(value);
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  // Sorting finds duplicates in n log n whatever the keys are; a hash table could be attacked.
  bool check_keys(const Frame& frame) {
    const auto key_of = [&](size_t i) -> const std::string& { return frame.members[i].first; };
    std::vector<size_t> order(frame.members.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return key_of(a) != key_of(b) ? key_of(a) < key_of(b) : a < b; });
    const auto twice =
        std::adjacent_find(order.begin(), order.end(), [&](size_t a, size_t b) { return key_of(a) == key_of(b); });
    if (twice == order.end()) {
      return true;
    }
    const size_t second = *std::next(twice);
    constexpr size_t kShown = 100;
    const std::string shown = key_of(second).size() <= kShown ? write_json(Json::string(key_of(second))) : "";
    return fail(frame.key_ends[second], fmt::format("duplicate key{}{}", shown.empty() ? "" : " ", shown));
  }

  size_t max_depth_;
  size_t max_values_;
  const size_t* num_read_;
  size_t num_values_ = 0;
  std::vector<Frame> open_;
  Json root_;
  std::string reason_;
  size_t position_ = 0;
};

tl::unexpected<Error> json_error(size_t position, std::string_view reason) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("JSON, byte {}: {}", position, reason));
}

}  // namespace

Result<Json> parse_json(std::string_view text, JsonLimits limits) {
  if (text.size() > limits.max_bytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("JSON: {} bytes, more than the limit of {}", text.size(), limits.max_bytes));
  }
  size_t num_read = 0;
  Builder builder(limits, &num_read);
  const bool ok = nlohmann::json::sax_parse(CountingIterator(text.data(), &num_read),
                                            CountingIterator(text.data() + text.size(), &num_read), &builder);
  // nlohmann's lexer takes a NUL byte between tokens for the end of the input.
  const bool stopped_at_nul = num_read > 0 && text[num_read - 1] == '\0';
  if (stopped_at_nul) {
    return json_error(num_read - 1, "a NUL byte outside or unescaped inside a string");
  }
  if (!ok) {
    return json_error(builder.position(), builder.reason());
  }
  return builder.take();
}

}  // namespace kipp
