// Writes the C++ file that compiles a .metal file and tells the emulator of its entry points. The source's text goes in
// as it is, but for one word: the attribute of threadgroup memory has the name of the address space, which is a macro
// in C++. Usage: metal_signatures kernel.metal output.cc [prefix]; the prefix goes before the functions' names in the
// emulator.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

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

int write(const std::filesystem::path& input, const std::filesystem::path& output, const std::string& prefix) {
  std::ifstream file(input);
  std::stringstream text;
  text << file.rdbuf();
  const Result<Source> source = read_source(text.str());
  if (!file || !source) {
    fmt::print(stderr, "{}: {}\n", input.string(), file ? source.error().message : "cannot be read");
    return 1;
  }
  std::ofstream out(output);
  // The standard library first: each file has a namespace of its own.
  out << "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\n#include \"metal/emulation/entry.h\"\n\n"
      << fmt::format("namespace {{\nnamespace source {{\n#line 1 \"{}\"\n", std::filesystem::absolute(input).string())
      << with_attribute_renamed(text.str()) << fmt::format("}}\n#line 1 \"{}\"\n", output.string())
      << "using namespace kipp::metal_emulation;\n\n"
      << constants_table(*source);
  for (const SourceFunction& function : source->functions)
    out << function_entry(function, source->constants.size(), prefix);
  out << "}\n";
  return out.good() ? 0 : 1;
}

}  // namespace
}  // namespace kipp::metal_emulation

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    fmt::print(stderr, "usage: metal_signatures kernel.metal output.cc [prefix]\n");
    return 2;
  }
  return kipp::metal_emulation::write(argv[1], argv[2], argc == 4 ? argv[3] : "");
}
