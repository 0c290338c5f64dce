// JSON: what is accepted, what is refused and with which message, and Python's output form byte for byte.
#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

namespace kipp {
namespace {

using ::testing::HasSubstr;

std::string error_of(std::string_view text, JsonLimits limits = {}) {
  const Result<Json> result = parse_json(text, limits);
  if (result) {
    return "accepted";
  }
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  return result.error().message;
}

std::string compact(std::string_view text) {
  const Result<Json> result = parse_json(text);
  return result ? write_json(*result) : result.error().message;
}

std::string nested(size_t depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

TEST(Json, KeepsOrderAndLiterals) {
  const std::string text =
      R"({"z":1.50,"a":-0,"m":[1E5,0.10e-3,12345678901234567890,-9223372036854775809,18446744073709551616,1e-400],"":null})";
  EXPECT_EQ(compact(text), text);
  EXPECT_EQ(compact(" [ true , false ,\n\"\\u00e9\\n\\u0000\" ]\t\r\n"), "[true,false,\"é\\n\\u0000\"]");
  EXPECT_EQ(compact("\xEF\xBB\xBF{}"), "{}");  // RFC 8259 lets a parser skip a byte order mark
}

TEST(Json, Access) {
  const Json json = parse_json(R"({"s":"x","n":7,"f":2.5,"b":true,"l":[1,2],"o":{"k":null}})").value();
  EXPECT_EQ(json.find("s")->as_string(), "x");
  EXPECT_EQ(json.find("n")->as_int64(), 7);
  EXPECT_EQ(json.find("f")->as_double(), 2.5);
  EXPECT_TRUE(json.find("b")->as_bool());
  EXPECT_EQ(json.find("l")->items().size(), 2U);
  EXPECT_TRUE(json.find("o")->find("k")->is_null());
  EXPECT_EQ(json.find("absent"), nullptr);
  // Asking for another kind gives the empty value, never undefined behaviour.
  EXPECT_EQ(json.find("n")->as_string(), "");
  EXPECT_EQ(json.find("s")->as_int64(), std::nullopt);
  EXPECT_EQ(json.find("s")->literal(), "");
  EXPECT_FALSE(json.find("s")->as_bool());
  EXPECT_TRUE(json.find("s")->items().empty());
  EXPECT_EQ(json.find("s")->find("k"), nullptr);
}

TEST(Json, ANullMemberIsNoValue) {
  const Json object = parse_json(R"({"null": null, "false": false})").value();
  EXPECT_NE(object.find("null"), nullptr);
  EXPECT_EQ(object.find_value("null"), nullptr);
  EXPECT_EQ(object.find_value("absent"), nullptr);
  EXPECT_EQ(object.find_value("false"), object.find("false"));
  EXPECT_EQ(Json().find_value("x"), nullptr);
}

TEST(Json, ExactIntegers) {
  const auto int64 = [](const char* literal) { return Json::number_literal(literal).as_int64(); };
  const auto uint64 = [](const char* literal) { return Json::number_literal(literal).as_uint64(); };
  EXPECT_EQ(int64("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(int64("9223372036854775808"), std::nullopt);
  EXPECT_EQ(uint64("18446744073709551615"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(uint64("18446744073709551616"), std::nullopt);
  EXPECT_EQ(uint64("-1"), std::nullopt);
  EXPECT_EQ(int64("-0"), 0);
  EXPECT_EQ(uint64("-0"), 0U);
  for (const char* literal : {"1.0", "1e3", "1.5", ""}) {
    EXPECT_EQ(int64(literal), std::nullopt) << literal;
    EXPECT_EQ(uint64(literal), std::nullopt) << literal;
  }
}

TEST(Json, Doubles) {
  const auto real = [](std::string literal) { return Json::number_literal(std::move(literal)).as_double(); };
  EXPECT_EQ(real("1e3"), 1000.0);
  EXPECT_EQ(real("18446744073709551616"), 18446744073709551616.0);
  EXPECT_EQ(real("4.9406564584124654e-324"), std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(real("1e400"), std::nullopt);
  EXPECT_EQ(real("0e99999999999999999999999"), 0.0);
  EXPECT_EQ(real("0.000E-99999999999999999999999"), 0.0);
  EXPECT_EQ(real(std::string("-1") + std::string(400, '0')), std::nullopt);
  EXPECT_EQ(real(std::string("0.") + std::string(400, '0') + "1e800"), std::nullopt);
  EXPECT_EQ(real(std::string("0.") + std::string(400, '0') + "1e402"), 10.0);
  EXPECT_EQ(real(std::string("1") + std::string(400, '0') + "e-400"), 1.0);
  const std::optional<double> tiny = real(std::string("-1") + std::string(400, '0') + "e-99999999999999999999999");
  ASSERT_TRUE(tiny.has_value());
  EXPECT_TRUE(*tiny == 0.0 && std::signbit(*tiny));
}

TEST(Json, Building) {
  Json json = Json::object({{"a", Json::number(int64_t{-5})}});
  json.set("b", Json::number(0.1));
  json.set("a", Json::boolean(true));
  Json list;
  list.push_back(Json::string("\"\\/\b\f\n\r\t\x1f\x7f"));
  list.push_back(Json::number(std::numeric_limits<double>::quiet_NaN()));
  json.set("c", std::move(list));
  EXPECT_EQ(write_json(json), "{\"a\":true,\"b\":0.1,\"c\":[\"\\\"\\\\/\\b\\f\\n\\r\\t\\u001f\x7f\",null]}");
  EXPECT_EQ(write_python_json(json),
            "{\"a\": true, \"b\": 0.1, \"c\": [\"\\\"\\\\/\\b\\f\\n\\r\\t\\u001f\x7f\", null]}");
}

// Building on a value of another kind is a mistake of the caller's that must not lose what is there.
TEST(Json, SetAndPushBackOnOtherKinds) {
  Json from_null;
  from_null.set("a", Json::number(int64_t{1}));
  EXPECT_EQ(write_json(from_null), R"({"a":1})");
  for (const char* text : {"[1]", "\"x\"", "7", "true"}) {
    Json json = parse_json(text).value();
    json.set("a", Json::number(int64_t{1}));
    EXPECT_EQ(write_json(json), text);
  }
  for (const char* text : {"{\"a\":1}", "\"x\"", "7", "true"}) {
    Json json = parse_json(text).value();
    json.push_back(Json::number(int64_t{1}));
    EXPECT_EQ(write_json(json), text);
  }
}

TEST(Json, RefusesWithPositionAndReason) {
  EXPECT_EQ(error_of(R"({"a":1,"b":2,"a":3})"), "JSON, byte 15: duplicate key \"a\"");
  EXPECT_EQ(error_of(R"([{"k":{"\u0061":1,"a":2}}])"), "JSON, byte 20: duplicate key \"a\"");
  EXPECT_EQ(error_of("[1,]"),
            "JSON, byte 3: syntax error while parsing value - unexpected ']'; expected '[', '{', or a literal");
  EXPECT_THAT(error_of(R"({"prompt":"A"} x)"), HasSubstr("JSON, byte 15: "));
  EXPECT_THAT(error_of(R"({"prompt":"Hi")"), HasSubstr("unexpected end of input"));
  EXPECT_EQ(error_of("1e400"), "JSON, byte 4: a number too large for a double");
  EXPECT_EQ(error_of("[-1e400]"), "JSON, byte 7: a number too large for a double");
  EXPECT_THAT(error_of(std::string("1") + std::string(400, '0')), HasSubstr("a number too large"));
  EXPECT_THAT(error_of("\"\\ud800\""), HasSubstr("surrogate"));
  EXPECT_THAT(error_of("\"\\udc00\\ud800\""), HasSubstr("surrogate"));
  EXPECT_THAT(error_of("\"a\nb\""), HasSubstr("control character"));
  for (const char* text : {"",   " ",       "NaN",     "Infinity", "-Infinity", "nul",   "'a'",       "01",    "1.",
                           ".5", "+1",      "-",       "1e",       "0x10",      "{a:1}", "{\"a\" 1}", "[1 2]", "[1,2",
                           "]",  "// c\n1", "/* */ 1", "\"\\x\"",  "\"abc",     "1 2",   "[]]"}) {
    EXPECT_THAT(error_of(text), HasSubstr("JSON, byte ")) << text;
  }
}

TEST(Json, RefusesBrokenUtf8WithoutRepeatingIt) {
  for (const std::string broken :
       {"\xFF", "\xC3", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80"}) {
    for (const std::string& text : {"\"" + broken + "\"", broken, "{\"" + broken + "\":1}", "1" + broken}) {
      const std::string message = error_of(text);
      EXPECT_THAT(message, HasSubstr("JSON, byte "));
      EXPECT_TRUE(std::all_of(message.begin(), message.end(), [](char c) { return c > 0; })) << message;
    }
  }
}

// nlohmann's lexer takes a NUL for the end of the input: whatever follows would be ignored silently.
TEST(Json, RefusesNulBytes) {
  using namespace std::string_literals;
  EXPECT_THAT(error_of("{}\0"s), HasSubstr("byte 2: a NUL byte"));
  EXPECT_THAT(error_of("{}\0{\"a\":"s), HasSubstr("byte 2: a NUL byte"));
  EXPECT_THAT(error_of("12\0"s), HasSubstr("byte 2: a NUL byte"));
  EXPECT_THAT(error_of("\0"s), HasSubstr("byte 0: a NUL byte"));
  EXPECT_THAT(error_of("[\0]"s), HasSubstr("byte 1: a NUL byte"));
  EXPECT_THAT(error_of("\"a\0b\""s), HasSubstr("byte 2: a NUL byte"));
}

TEST(Json, Limits) {
  EXPECT_EQ(compact(nested(128)), nested(128));
  EXPECT_THAT(error_of(nested(129)), HasSubstr("byte 128: nested deeper than 128 levels"));
  EXPECT_THAT(error_of(nested(200000)), HasSubstr("nested deeper than 128 levels"));
  EXPECT_THAT(error_of(std::string(1000000, '[')), HasSubstr("nested deeper than 128 levels"));
  EXPECT_EQ(error_of(nested(3), {.max_depth = 3}), "accepted");
  EXPECT_THAT(error_of("[{\"a\":[{}]}]", {.max_depth = 3}), HasSubstr("nested deeper than 3 levels"));
  EXPECT_EQ(error_of(nested(1024), {.max_depth = 1U << 30}), "accepted");
  EXPECT_THAT(error_of(nested(1025), {.max_depth = 1U << 30}), HasSubstr("nested deeper than 1024 levels"));
  EXPECT_EQ(error_of("[1,2]", {.max_bytes = 4}), "JSON: 5 bytes, more than the limit of 4");
  EXPECT_EQ(error_of("[1,2]", {.max_bytes = 5}), "accepted");
  EXPECT_EQ(error_of("[1,[2]]", {.max_values = 4}), "accepted");
  EXPECT_THAT(error_of("[1,[2]]", {.max_values = 3}), HasSubstr("more than 3 values"));
  EXPECT_EQ(error_of("[[],{}]", {.max_values = 3}), "accepted");  // containers count like scalars
  EXPECT_EQ(error_of("[[],{}]", {.max_values = 2}), "JSON, byte 4: more than 2 values");
  EXPECT_EQ(error_of("[[],[]]", {.max_values = 2}), "JSON, byte 4: more than 2 values");
}

TEST(Json, LongTokensDoNotMakeLongMessages) {
  const std::string key(100000, 'k');
  EXPECT_LT(error_of("{\"" + key + "\":1,\"" + key + "\":2}").size(), 200U);
  EXPECT_LT(error_of("\"" + key + "\n\"").size(), 200U);
  EXPECT_LT(error_of(std::string(100000, '9')).size(), 200U);
}

TEST(Json, ManyKeys) {
  std::string text = "{";
  for (int i = 0; i < 200000; ++i) {
    text += "\"k" + std::to_string(i) + "\":0,";
  }
  EXPECT_EQ(error_of(text + "\"last\":0}"), "accepted");
  EXPECT_THAT(error_of(text + "\"k77\":0}"), HasSubstr("duplicate key \"k77\""));
}

// Every prefix and every single-byte change of a valid text is parsed or refused; what is parsed survives a round trip.
TEST(Json, MutationsNeverCrash) {
  const std::string text = R"({"a":[1,-0,2.5e-3,"\ud83d\ude00é\n",null,true],"b":{"c":{}}})";
  const auto check = [](const std::string& mutated) {
    const Result<Json> json = parse_json(mutated);
    if (json) {
      const std::string written = write_json(*json);
      EXPECT_EQ(compact(written), written) << mutated;
    }
  };
  for (size_t i = 0; i < text.size(); ++i) {
    EXPECT_NE(error_of(text.substr(0, i)), "accepted");
    for (int byte = 0; byte < 256; ++byte) {
      std::string mutated = text;
      mutated[i] = static_cast<char>(byte);
      check(mutated);
    }
  }
}

// Written by tests/golden/make_json_dumps.py with Python's own json module.
TEST(JsonPython, GoldenFile) {
  std::ifstream file(KIPP_SOURCE_DIR "/tests/golden/json_dumps.jsonl");
  ASSERT_TRUE(file);
  size_t num_lines = 0;
  for (std::string line; std::getline(file, line); ++num_lines) {
    const Result<Json> record = parse_json(line);
    ASSERT_TRUE(record) << record.error().message;
    const Result<Json> value = parse_json(record->find("text")->as_string());
    ASSERT_TRUE(value) << value.error().message << ": " << record->find("text")->as_string();
    EXPECT_EQ(write_python_json(*value), record->find("dumps")->as_string());
  }
  EXPECT_GE(num_lines, 80U);
}

TEST(JsonPython, Floats) {
  EXPECT_EQ(python_float(1.0), "1.0");
  EXPECT_EQ(python_float(-0.0), "-0.0");
  EXPECT_EQ(python_float(1e16), "1e+16");
  EXPECT_EQ(python_float(9999999999999998.0), "9999999999999998.0");
  EXPECT_EQ(python_float(0.0001), "0.0001");
  EXPECT_EQ(python_float(0.00001), "1e-05");
  EXPECT_EQ(python_float(1.5e300), "1.5e+300");
  EXPECT_EQ(python_float(5e-324), "5e-324");
}

}  // namespace
}  // namespace kipp
