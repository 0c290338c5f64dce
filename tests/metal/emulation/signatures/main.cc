// Writes the C++ file that compiles a .metal file and tells the emulator of its entry points. The source's text goes in
// as it is, but for one word: the attribute of threadgroup memory has the name of the address space, which is a macro
// in C++. Usage: metal_signatures kernel.metal output.cc [faults.txt fault]; the fault of that name is planted, and its
// name goes before the functions' in the emulator.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "metal/emulation/signatures/fault.h"
#include "metal/emulation/signatures/language.h"

namespace kipp::metal_emulation {
namespace {

std::string constants_table(const Source& source) {
  std::string out = fmt::format("const ConstantEntry constants[{}] = {{\n", source.constants.size() + 1);
  for (const SourceConstant& c : source.constants) {
    out += fmt::format("    {{\"{}\", {}, \"{}\", &source::{}}},\n", c.name, c.index, c.type, c.name);
  }
  return out + "    {nullptr, 0, nullptr, nullptr}};\n";
}

std::string function_entry(const SourceFunction& function, size_t num_constants, const std::string& prefix) {
  std::string out =
      fmt::format("\nnamespace {} {{\nParameterEntry parameters[{}] = {{\n", function.name, function.parameters.size());
  for (const SourceParameter& p : function.parameters) {
    out += fmt::format("    {{\"{}\", \"{}\", {}, \"{}\", false, false, 1, 0, 0}},\n", p.name, p.attribute, p.index,
                       p.space);
  }
  out += "};\n";
  out += fmt::format("using Type = Signature<decltype(&source::{})>;\n", function.name);
  out += fmt::format("void call(const ThreadInputs& inputs) {{ Type::call(&source::{}, inputs); }}\n", function.name);
  out += fmt::format("const FunctionEntry entry = {{\"{}{}\", call, parameters, {}, constants, {}}};\n", prefix,
                     function.name, function.parameters.size(), num_constants);
  out += "bool enter() {\n  Type::complete(parameters);\n  return register_function(entry);\n}\n";
  return out + "const bool is_registered = enter();\n}\n";
}

std::string with_attribute_renamed(std::string text) {
  constexpr std::string_view kAttribute = "[[threadgroup(";
  for (size_t at = text.find(kAttribute); at != std::string::npos; at = text.find(kAttribute, at + 1)) {
    text.replace(at, kAttribute.size(), "[[threadgroup_memory(");
  }
  return text;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Result<std::string> read_kernel(const std::filesystem::path& path, const std::string& faults, const std::string& name) {
  std::string text = read(path);
  if (text.empty()) return make_error(ErrorCode::kNotFound, "it cannot be read");
  if (name.empty()) return text;
  KIPP_ASSIGN(const std::vector<SeededFault> all, read_faults(read(faults)));
  const auto fault = std::ranges::find(all, name, &SeededFault::name);
  if (fault == all.end()) return make_error(ErrorCode::kNotFound, "there is no fault " + name);
  return with_fault(*fault, text, path.filename() == fault->file ? "" : read(path.parent_path() / fault->file));
}

Result<void> write(const std::filesystem::path& input, const std::string& output, const std::string& faults,
                   const std::string& fault) {
  KIPP_ASSIGN(const std::string text, read_kernel(input, faults, fault));
  KIPP_ASSIGN(const Source source, read_source(text));
  std::ofstream out(output);
  // The standard library first: each file has a namespace of its own.
  out << "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\n#include \"metal/emulation/entry.h\"\n\n"
      << fmt::format("namespace {{\nnamespace source {{\n#line 1 \"{}\"\n", std::filesystem::absolute(input).string())
      << with_attribute_renamed(text) << fmt::format("}}\n#line 1 \"{}\"\n", output)
      << "using namespace kipp::metal_emulation;\n\n"
      << constants_table(source);
  for (const SourceFunction& function : source.functions) {
    out << function_entry(function, source.constants.size(), fault.empty() ? "" : fault + "/");
  }
  out << "}\n";
  if (!out.good()) return make_error(ErrorCode::kIo, "cannot write " + output);
  return {};
}

}  // namespace
}  // namespace kipp::metal_emulation

int main(int argc, char** argv) {
  if (argc != 3 && argc != 5) {
    fmt::print(stderr, "usage: metal_signatures kernel.metal output.cc [faults.txt fault]\n");
    return 2;
  }
  const auto result =
      kipp::metal_emulation::write(argv[1], argv[2], argc == 5 ? argv[3] : "", argc == 5 ? argv[4] : "");
  if (!result) fmt::print(stderr, "{}: {}\n", argv[1], result.error().message);
  return result ? 0 : 1;
}
