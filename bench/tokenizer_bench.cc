// Tokenizer benchmark: creation, a text given as files, and the shapes of input that make tokenizers slow. One JSON
// object on stdout. Times are the medians and bests of repeated runs on one thread.
//   tokenizer_bench [--repeats N] [FILE with JSON Lines {"text"} …]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tokenizer/qwen_tokenizer.h"

namespace {

using kipp::Tokenizer;
using nlohmann::json;

int num_repeats = 7;

double cpu_ms() {
  return static_cast<double>(std::clock()) * 1e3 / CLOCKS_PER_SEC;
}

// Wall time, and the processor time of the same runs: on a shared machine a long run is interrupted and a short one
// not, which shows in the ratio of the former only.
template <typename Function>
json time_ms(Function run) {
  std::vector<double> wall;
  std::vector<double> cpu;
  for (int i = 0; i < num_repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const double cpu_start = cpu_ms();
    run();
    cpu.push_back(cpu_ms() - cpu_start);
    wall.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(wall.begin(), wall.end());
  std::sort(cpu.begin(), cpu.end());
  return {{"median_ms", wall[wall.size() / 2]},
          {"best_ms", wall[0]},
          {"all_ms", wall},
          {"median_cpu_ms", cpu[cpu.size() / 2]},
          {"best_cpu_ms", cpu[0]}};
}

std::string repeat(const std::string& unit, size_t size) {
  std::string text;
  while (text.size() < size) {
    text += unit;
  }
  return text;
}

std::string random_letters(size_t size) {
  std::mt19937 random(1);
  std::string text;
  while (text.size() < size) {
    text.push_back(static_cast<char>('a' + random() % 26));
  }
  return text;
}

json bench_creation() {
  const kipp::testing::TokenizerData data = kipp::testing::read_qwen_tokenizer(false);
  const kipp::TokenizerSource source = data.source();
  return time_ms([&] { Tokenizer::create(source).value(); });
}

// Each shape at 100,000 and at 1,000,000 bytes, and the ratio of the two times (10 is linear).
json bench_shapes(const Tokenizer& tokenizer) {
  const std::string letters = random_letters(1'000'000);
  const std::vector<std::pair<std::string, std::string>> shapes = {
      {"letter a", repeat("a", 1'000'000)},
      {"emoji", repeat("\U0001F600", 1'000'000)},
      {"emoji joined", repeat("\U0001F468\u200D\U0001F469\u200D\U0001F467", 1'000'000)},
      {"spaces", repeat(" ", 1'000'000)},
      {"newlines", repeat(" \n", 1'000'000)},
      {"random letters", letters},
      {"unordered marks", repeat("\u0301\u0323", 1'000'000)},
      {"conjoining jamo", repeat("\u1100\u1161\u11A8", 1'000'000)},
      {"half control tokens", repeat("<|im_en", 1'000'000)},
      {"angle brackets", repeat("<", 1'000'000)},
      {"digits", repeat("1", 1'000'000)},
      {"NUL", std::string(1'000'000, '\0')},
  };
  json results = json::object();
  for (const auto& [name, text] : shapes) {
    size_t cut = text.size() / 10;
    while ((static_cast<uint8_t>(text[cut]) & 0xC0U) == 0x80) {
      ++cut;
    }
    const json tenth = time_ms([&] { tokenizer.encode(std::string_view(text).substr(0, cut)).value(); });
    const json whole = time_ms([&] { tokenizer.encode(text).value(); });
    const auto ratio = [&](const char* key) { return whole[key].get<double>() / tenth[key].get<double>(); };
    results[name] = {{"tenth", tenth},
                     {"whole", whole},
                     {"ratio_of_wall_medians", ratio("median_ms")},
                     {"ratio_of_cpu_medians", ratio("median_cpu_ms")}};
  }
  return results;
}

// Words of one length: the time per byte around the length at which BPE changes its way.
json bench_word_lengths(const Tokenizer& tokenizer) {
  json results = json::object();
  for (const size_t length : {4U, 8U, 16U, 32U, 33U, 48U, 64U, 96U, 128U, 256U, 1024U}) {
    std::string text = random_letters(1'000'000);
    for (size_t i = 0; i < text.size(); i += length) {
      text[i] = ' ';
    }
    results[std::to_string(length)] = time_ms([&] { tokenizer.encode(text).value(); });
  }
  return results;
}

json bench_file(const Tokenizer& tokenizer, const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> texts;
  std::string joined;
  for (std::string line; std::getline(file, line);) {
    texts.push_back(json::parse(line)["text"].get<std::string>());
    joined += texts.back();
  }
  size_t num_ids = 0;
  const json separate = time_ms([&] {
    num_ids = 0;
    for (const std::string& text : texts) {
      num_ids += tokenizer.encode(text).value().size();
    }
  });
  size_t num_joined_ids = 0;
  const json one = time_ms([&] { num_joined_ids = tokenizer.encode(joined).value().size(); });
  return {{"bytes", joined.size()}, {"texts", texts.size()},   {"separate", separate},
          {"joined", one},          {"separate_ids", num_ids}, {"joined_ids", num_joined_ids}};
}

}  // namespace

int main(int argc, char** argv) {
  std::string path;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--repeats" && i + 1 < argc) {
      num_repeats = std::max(1, std::atoi(argv[++i]));
    } else {
      path = argument;
    }
  }
  const Tokenizer& tokenizer = kipp::testing::qwen_tokenizer();
  json results = {{"compiler", __VERSION__}, {"repeats", num_repeats}};
  if (path.empty()) {
    results["create"] = bench_creation();
    results["shapes"] = bench_shapes(tokenizer);
    results["words_of_length"] = bench_word_lengths(tokenizer);
  } else {
    results["file"] = bench_file(tokenizer, path);
  }
  fmt::print("{}\n", results.dump(2));
  return 0;
}
