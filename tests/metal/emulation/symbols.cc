// Reads the ELF symbol table of the running program.
#include "metal/emulation/symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/mapped_file.h"

namespace kipp::metal_emulation {
namespace {

struct Symbol {
  std::string name;  // demangled
  uintptr_t begin, end;
};

struct Image {
  uintptr_t base = 0;
  std::vector<Range> constant_data;  // segments that cannot be written
  bool found = false;
};

int note_image(dl_phdr_info* info, size_t, void* argument) {
  auto& image = *static_cast<Image*>(argument);
  if (image.found) return 1;  // the first is the program
  image.found = true;
  image.base = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) continue;
    const uintptr_t begin = image.base + segment.p_vaddr;
    image.constant_data.push_back({.begin = begin, .end = begin + segment.p_memsz, .name = "constant data"});
  }
  return 1;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return text == nullptr ? std::string(name) : std::string(text.get());
}

// Objects whose names lie in a namespace of kernels.
std::vector<Symbol> read_symbols(const Image& image) {
  std::vector<Symbol> symbols;
  auto file = MappedFile::open("/proc/self/exe");
  if (!file) return symbols;
  const auto* bytes = reinterpret_cast<const char*>(file->bytes().data());
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(bytes);
  const auto* sections = reinterpret_cast<const ElfW(Shdr)*>(bytes + header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const char* names = bytes + sections[sections[i].sh_link].sh_offset;
    const auto* table = reinterpret_cast<const ElfW(Sym)*>(bytes + sections[i].sh_offset);
    for (size_t s = 0; s < sections[i].sh_size / sizeof(ElfW(Sym)); ++s) {
      const char* name = names + table[s].st_name;
      if (ELF64_ST_TYPE(table[s].st_info) != STT_OBJECT || std::strstr(name, "kipp_msl") == nullptr) continue;
      const uintptr_t begin = image.base + table[s].st_value;
      symbols.push_back({demangled(name), begin, begin + table[s].st_size});
    }
  }
  return symbols;
}

const Image& image() {
  static const Image instance = [] {
    Image found;
    dl_iterate_phdr(note_image, &found);
    return found;
  }();
  return instance;
}

const std::vector<Symbol>& symbols() {
  static const std::vector<Symbol> instance = read_symbols(image());
  return instance;
}

// A static variable of a function demangles to "function(parameters)::variable".
bool is_local(const std::string& name) {
  return name.find(")::") != std::string::npos;
}

}  // namespace

std::vector<Range> threadgroup_variables(const std::string& cxx_name) {
  std::vector<Range> ranges;
  for (const Symbol& symbol : symbols()) {
    if (!is_local(symbol.name) || !symbol.name.starts_with(cxx_name + "(")) continue;
    ranges.push_back({.begin = symbol.begin,
                      .end = symbol.end,
                      .space = Space::kThreadgroup,
                      .writable = true,
                      .tracked = true,
                      .name = "threadgroup " + symbol.name.substr(symbol.name.rfind("::") + 2)});
  }
  return ranges;
}

std::vector<Range> program_scope() {
  std::vector<Range> ranges = image().constant_data;
  for (const Symbol& symbol : symbols()) {
    if (!is_local(symbol.name)) ranges.push_back({.begin = symbol.begin, .end = symbol.end, .name = symbol.name});
  }
  return ranges;
}

}  // namespace kipp::metal_emulation
