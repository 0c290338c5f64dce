// See language.h. Rules: Metal Shading Language Specification, 5.1.3 Compute Functions (Kernels), 5.2.1 Locating
// Buffer, Texture, and Sampler Arguments, 5.2.3.6 Kernel Function Input Attributes, 5.8.1 Specifying Program Scope
// Function Constants, and "Restrictions" of the chapter on Metal and C++14.
#include "metal/emulation/signatures/language.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>
#include <set>

namespace kipp::metal_emulation {
namespace {

constexpr std::string_view kPositions[] = {"threadgroup_position_in_grid", "thread_position_in_threadgroup",
                                           "thread_position_in_grid", "threads_per_threadgroup",
                                           "threadgroups_per_grid"};
constexpr std::string_view kNumbers[] = {"thread_index_in_threadgroup", "thread_index_in_simdgroup",
                                         "simdgroup_index_in_threadgroup", "simdgroups_per_threadgroup",
                                         "threads_per_simdgroup"};

// Comments become spaces, so that lines stay where they are.
std::string without_comments(std::string_view text) {
  std::string out(text);
  for (size_t i = 0; i + 1 < out.size(); ++i) {
    if (out[i] != '/' || (out[i + 1] != '/' && out[i + 1] != '*')) continue;
    const bool is_line = out[i + 1] == '/';
    const size_t end = out.find(is_line ? "\n" : "*/", i + 2);
    const size_t stop = end == std::string::npos ? out.size() : end + (is_line ? 0 : 2);
    for (; i < stop; ++i) {
      if (out[i] != '\n') out[i] = ' ';
    }
  }
  return out;
}

tl::unexpected<Error> failed(const std::string& text, size_t at, const std::string& what) {
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n');
  return make_error(ErrorCode::kInvalidArgument, fmt::format("line {}: {}", line, what));
}

struct Refused {
  const char* pattern;
  const char* what;
};

Result<void> check_constructs(const std::string& text) {
  static const Refused kRefused[] = {
      {R"(\b(?:class|struct)\s+\w+\s*:)", "Metal has no derived classes"},
      {R"((?:[=(,{;]|\breturn)\s*\[(?!\[)[\w\s,&=]*\]\s*[({])", "Metal 3.1 has no lambda expressions"},
      {R"(\bthreadgroup\s+(?:\w+\s+)?\w+\s+\w+\s*(?:\[[^\]\n]*\]\s*)*;)",
       "threadgroup memory comes as an argument here, not as a variable"},
  };
  for (const Refused& refused : kRefused) {
    std::smatch match;
    if (std::regex_search(text, match, std::regex(refused.pattern))) {
      return failed(text, static_cast<size_t>(match.position()), refused.what);
    }
  }
  return {};
}

// The pieces between commas that are in no bracket.
std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> pieces(1);
  int depth = 0;
  for (const char c : list) {
    if (c == '(' || c == '[' || c == '<') ++depth;
    if (c == ')' || c == ']' || c == '>') --depth;
    if (c == ',' && depth == 0) {
      pieces.emplace_back();
    } else {
      pieces.back() += c;
    }
  }
  return pieces;
}

// An argument, or in `what` why it is none.
SourceParameter read_parameter(const std::string& piece, std::string& dimensions, std::string& what) {
  static const std::regex pattern(
      R"(^\s*(device\s+|constant\s+|threadgroup\s+)?((?:const\s+)?(\w+)\s*(?:const\s*)?([*&]?))\s*(\w+)\s*\[\[\s*(\w+)\s*(?:\(\s*(\w+)\s*\))?\s*\]\]\s*$)");
  std::smatch match;
  SourceParameter parameter;
  if (!std::regex_match(piece, match, pattern)) {
    what = "an argument needs a type, a name and one attribute: " + piece;
    return parameter;
  }
  parameter.space = match[1].matched ? std::regex_replace(match[1].str(), std::regex(R"(\s)"), "") : "";
  parameter.name = match[5];
  parameter.attribute = match[6];
  const bool is_pointer = match[4].length() > 0;
  const bool has_index = parameter.attribute == "buffer" || parameter.attribute == "threadgroup";
  if (has_index && (!match[7].matched || !std::regex_match(match[7].str(), std::regex("[0-9]+")))) {
    what = parameter.name + " needs a number as its index";
  } else if (has_index) {
    parameter.index = static_cast<unsigned>(std::stoul(match[7]));
  }
  const bool in_threadgroup = parameter.space == "threadgroup";
  if (has_index &&
      (!is_pointer || parameter.space.empty() || in_threadgroup != (parameter.attribute == "threadgroup"))) {
    what = parameter.name + " is not in the address space of its attribute";
  }
  const bool is_position = std::ranges::find(kPositions, parameter.attribute) != std::end(kPositions);
  const bool is_number = std::ranges::find(kNumbers, parameter.attribute) != std::end(kNumbers);
  if (!has_index && !is_position && !is_number) what = "unknown attribute " + parameter.attribute;
  if (!has_index && (is_pointer || !parameter.space.empty())) what = parameter.name + " is a number, not a place";
  static const std::regex number(R"((?:uint|ushort)([23]?))");
  std::smatch type;
  const std::string type_name = match[3];
  if (!has_index && !std::regex_match(type_name, type, number)) {
    what = parameter.name + " is of a type that its attribute does not have";
  } else if (is_position) {
    dimensions = type[1].length() > 0 ? type[1].str() : "1";
  } else if (is_number && type[1].length() > 0) {
    what = parameter.name + " is one number";
  }
  return parameter;
}

Result<SourceFunction> read_function(const std::string& text, size_t at, const std::string& name, size_t open) {
  int depth = 0;
  size_t close = open;
  for (; close < text.size(); ++close) {
    if (text[close] == '(') ++depth;
    if (text[close] == ')' && --depth == 0) break;
  }
  SourceFunction function{.name = name, .parameters = {}};
  if (!name.starts_with("kipp_")) return failed(text, at, name + " does not begin with kipp_");
  std::set<std::pair<std::string, unsigned>> used;
  std::string all_dimensions;
  for (const std::string& piece : split(text.substr(open + 1, close - open - 1))) {
    std::string dimensions;
    std::string what;
    SourceParameter parameter = read_parameter(piece, dimensions, what);
    if (what.empty() && !parameter.space.empty() && !used.emplace(parameter.attribute, parameter.index).second) {
      what = fmt::format("{} {} is used twice", parameter.attribute, parameter.index);
    }
    if (what.empty() && !dimensions.empty() && !all_dimensions.empty() && dimensions != all_dimensions) {
      what = "positions have different numbers of dimensions";
    }
    if (!what.empty()) return failed(text, at, name + ": " + what);
    if (!dimensions.empty()) all_dimensions = dimensions;
    function.parameters.push_back(std::move(parameter));
  }
  return function;
}

}  // namespace

Result<Source> read_source(std::string_view commented) {
  const std::string text = without_comments(commented);
  KIPP_TRY(check_constructs(text));
  Source source;
  static const std::regex constant(
      R"(\bconstant\s+(\w+)\s+(\w+)\s*\[\[\s*function_constant\(\s*([0-9]+)\s*\)\s*\]\]\s*;)");
  std::set<unsigned> used;
  for (auto i = std::sregex_iterator(text.begin(), text.end(), constant); i != std::sregex_iterator(); ++i) {
    const auto index = static_cast<unsigned>(std::stoul((*i)[3]));
    if (!used.insert(index).second) {
      return failed(text, static_cast<size_t>(i->position()), fmt::format("function constant {} is used twice", index));
    }
    source.constants.push_back({.name = (*i)[2], .type = (*i)[1], .index = index});
  }
  static const std::regex entry(R"(\bkernel\s+void\s+(\w+)\s*\()");
  for (auto i = std::sregex_iterator(text.begin(), text.end(), entry); i != std::sregex_iterator(); ++i) {
    const auto at = static_cast<size_t>(i->position());
    KIPP_ASSIGN(SourceFunction function, read_function(text, at, (*i)[1], at + static_cast<size_t>(i->length()) - 1));
    source.functions.push_back(std::move(function));
  }
  static const std::regex any(R"(\bkernel\b)");
  const auto mentions = std::distance(std::sregex_iterator(text.begin(), text.end(), any), std::sregex_iterator());
  if (static_cast<size_t>(mentions) != source.functions.size()) {
    return failed(text, 0, "every kernel is written as: kernel void kipp_name(");
  }
  return source;
}

}  // namespace kipp::metal_emulation
