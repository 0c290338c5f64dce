// The main function of a fuzzer without libFuzzer: runs it once over every file of the given folders.
// Fails if a folder holds no file, so that seeds cannot go missing unnoticed.
#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    size_t num_files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(file), {}};
      fmt::print(stderr, "{}\n", entry.path().string());  // the last one printed is the one that failed
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      ++num_files;
    }
    if (num_files == 0) {
      fmt::print(stderr, "{}: no seeds\n", argv[i]);
      return 1;
    }
  }
  return argc > 1 ? 0 : 2;
}
