// Types against values, and the walk that a lenient server makes.
#include "server/openai/schema.h"

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kipp::openai {
namespace {

constexpr Rules kRules = {.num_tokens = 10};

std::string verdict(std::string_view json, const Type& type) {
  const Path root;
  const auto checked = check(parse_json(json).value(), type, root.member("x"), kRules);
  return checked ? "good" : checked.error().message;
}

TEST(OpenAiSchema, KindsAndRanges) {
  EXPECT_EQ(verdict("[1]", any_value()), "good");
  EXPECT_EQ(verdict("false", boolean()), "good");
  EXPECT_EQ(verdict("0", boolean()), "x: expected true or false, found 0");
  EXPECT_EQ(verdict("-0", integer(0, 5)), "good");
  EXPECT_EQ(verdict("6", integer(0, 5)), "x: expected an integer from 0 to 5, found 6");
  EXPECT_EQ(verdict("-1", integer(0, 5)), "x: expected an integer from 0 to 5, found -1");
  EXPECT_EQ(verdict("18446744073709551615", integer(0, 5)),
            "x: expected an integer from 0 to 5, found 18446744073709551615");
  EXPECT_EQ(verdict("1e0", integer(0, 5)), "x: expected an integer from 0 to 5, found 1e0");
  EXPECT_EQ(verdict("1e0", number(0, 5)), "good");
  EXPECT_EQ(verdict("5.1", number(0, 5)), "x: expected a number from 0 to 5, found 5.1");
  EXPECT_EQ(verdict("1.00000000001", number(0, 1)), "good");  // as a 32-bit float it is 1
  EXPECT_EQ(verdict("9", token_id()), "good");
  EXPECT_EQ(verdict("10", token_id()), "x: expected a token id from 0 to 9, found 10");
  EXPECT_EQ(verdict(R"("b")", choice({"a", "b"})), "good");
  EXPECT_EQ(verdict(R"("c")", choice({"a", "b"})), R"(x: expected "a" or "b", found "c")");
}

TEST(OpenAiSchema, SizesAreCharactersItemsAndMembers) {
  EXPECT_EQ(verdict(R"("äöü")", string(1, 3)), "good");
  EXPECT_EQ(verdict(R"("äöüß")", string(1, 3)), "x: expected a string of 1 to 3 characters, found one of 4 characters");
  EXPECT_EQ(verdict("[]", array(boolean(), 1)), "x: expected an array that is not empty, found an empty one");
  EXPECT_EQ(verdict("[true,false,true]", array(boolean(), 0, 2)),
            "x: expected an array of at most 2 items, found one of 3 items");
  EXPECT_EQ(verdict(R"({"a":1,"b":2})", map(integer(0, 9), 1)),
            "x: expected an object of at most 1 members, found one of 2 members");
}

TEST(OpenAiSchema, LongValuesAreNotRepeated) {
  const std::string text(100'000, 'x');
  EXPECT_EQ(verdict("\"" + text + "\"", boolean()), "x: expected true or false, found a string");
  EXPECT_LT(verdict(std::string(300, '1'), boolean()).size(), 150U);
  EXPECT_EQ(clipped("aé", 2), "a");
  EXPECT_EQ(clipped("aé", 3), "aé");
  EXPECT_EQ(num_characters("aé世🫨"), 4U);
}

TEST(OpenAiSchema, AlternativesAreToldApartByKind) {
  const Type type = one_of({string(1), array(string(1)), array(token_id())});
  EXPECT_EQ(verdict(R"("")", type), "x: expected a string that is not empty, found an empty one");
  EXPECT_EQ(verdict("[1,20]", type), "x[1]: expected a token id from 0 to 9, found 20");
  EXPECT_EQ(verdict(R"(["a",1])", type), "x[1]: expected a string that is not empty, found 1");
  EXPECT_EQ(verdict("[true]", type), "x: expected a string that is not empty or an array or an array, found an array");
  EXPECT_EQ(verdict("[true]", one_of({string(), array(string())})), "x[0]: expected a string, found true");
}

TEST(OpenAiSchema, ObjectsNameTheFirstWrongFieldInTheTablesOrder) {
  const std::vector<Field> fields = {
      {"a", boolean(), "", true}, {"b", integer(0, 1)}, {.name = "c", .supported = false, .passes = {Json::array()}}};
  const Type type = object(fields);
  EXPECT_EQ(verdict(R"({"b":2,"a":1,"z":0})", type), "x.a: expected true or false, found 1");
  EXPECT_EQ(verdict(R"({"b":2,"z":0,"a":true})", type), "x.b: expected an integer from 0 to 1, found 2");
  EXPECT_EQ(verdict(R"({"z":0,"y":0,"a":true})", type), "x.z: unknown field; did you mean a?");
  EXPECT_EQ(verdict(R"({"zzzz":0,"a":true})", type), "x.zzzz: unknown field");
  EXPECT_EQ(verdict(R"({"a":true,"b":null,"c":[]})", type), "good");
  EXPECT_EQ(verdict(R"({"a":null})", type), "x.a: expected true or false, found null");
  EXPECT_EQ(verdict(R"({"a":true,"c":[1]})", type),
            "x.c: Kipp does not support this field; leave it out, or set it to []");
  EXPECT_EQ(verdict("[]", type), "x: expected an object, found an array");
}

TEST(OpenAiSchema, WhatALenientServerKeeps) {
  const std::vector<Field> inner = {{"k", any_value()}};
  const std::vector<Field> fields = {
      {"a", array(object(inner))}, {"b", one_of({string(), object(inner)})}, {"c", any_value()}};
  const auto kept = [&](std::string_view json) {
    return write_json(without_unknown_fields(parse_json(json).value(), object(fields)));
  };
  EXPECT_EQ(kept(R"({"z":1,"a":[{"y":1,"k":{"z":1}}],"b":{"k":1,"z":2},"c":{"z":[1]}})"),
            R"({"a":[{"k":{"z":1}}],"b":{"k":1},"c":{"z":[1]}})");
  EXPECT_EQ(kept(R"({"b":"text","a":null})"), R"({"b":"text"})");
}

struct Target {
  int number = 0;
  std::string text;
};
struct Outer {
  Target inner;
};

TEST(OpenAiSchema, TablesStoreInTheirOwnOrder) {
  FieldTable<Target> table;
  table
      .add({"first", integer(0, 9)},
           [](const Json& value, Target& to) { to.number = static_cast<int>(value.as_int64().value()); })
      .add({"checked", boolean()})
      .add({"second", integer(0, 9)},
           [](const Json& value, Target& to) { to.number = static_cast<int>(value.as_int64().value()); });
  FieldTable<Outer> outer;
  outer.include(table, &Outer::inner);
  ASSERT_EQ(outer.fields().size(), 3U);
  Outer target;
  outer.store(parse_json(R"({"second":2,"checked":true,"first":1})").value(), target);
  EXPECT_EQ(target.inner.number, 2);
  outer.store(parse_json(R"({"second":null,"first":5})").value(), target);
  EXPECT_EQ(target.inner.number, 5);
}

}  // namespace
}  // namespace kipp::openai
