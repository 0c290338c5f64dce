// API keys and other origins: which requests pass, and what answers say about it.
#include <gtest/gtest.h>

#include <string>

#include "server/http/api_keys.h"
#include "server/http/cors.h"
#include "server/http/raw_client.h"
#include "server/http/request_head.h"

namespace kipp::http::testing {
namespace {

TEST(ApiKeys, FindsTheKeyInEitherHeader) {
  const ApiKeys keys({"first", "second", "third"});
  EXPECT_EQ(keys.find({{"authorization", "Bearer second"}}), 1);
  EXPECT_EQ(keys.find({{"authorization", "bearer  third"}}), 2);
  EXPECT_EQ(keys.find({{"x-api-key", "first"}}), 0);
  EXPECT_EQ(keys.find({{"authorization", "Bearer wrong"}, {"x-api-key", "first"}}), 0);
  for (const char* value : {"", "Bearer", "Bearer ", "second", "Basic second", "Bearer secon", "Bearer second ",
                            "Bearersecond", "Bearer second,first"}) {
    EXPECT_EQ(keys.find({{"authorization", value}}), std::nullopt) << value;
  }
  EXPECT_EQ(keys.find({}), std::nullopt);
  EXPECT_EQ(ApiKeys({}).find({{"x-api-key", ""}}), std::nullopt);
}

TEST(HttpAccess, AKeyIsAskedForExceptWhereOptionsSayOtherwise) {
  TestServer server({.api_keys = {"k0", "k1"}});
  const Answer refused = server.ask(get("/echo"));
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("www-authenticate"), "Bearer");
  EXPECT_EQ(refused.headers.at("connection"), "close");
  EXPECT_NE(refused.body.find(R"("code":"invalid_api_key")"), std::string::npos) << refused.body;
  EXPECT_EQ(server.ask(get("/echo", "Authorization: Bearer k2\r\n")).status, 401);
  EXPECT_EQ(server.ask(get("/echo", "Authorization: Bearer k1\r\n")).headers.at("x-key"), "1");
  EXPECT_EQ(server.ask(get("/echo", "X-Api-Key: k0\r\n")).headers.at("x-key"), "0");
  EXPECT_EQ(server.ask(get("/health")).headers.at("x-key"), "-1");
  EXPECT_EQ(server.ask(get("/health/")).status, 401);
  EXPECT_EQ(server.ask(get("http://x/echo")).status, 401);
  EXPECT_EQ(server.ask("OPTIONS /echo HTTP/1.1\r\nHost: x\r\n\r\n").status, 204);
  // Before the body is there: nobody uploads for a refusal.
  EXPECT_EQ(
      server.ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n").status,
      401);
  EXPECT_EQ(server.refusals(401), 5U);
}

TEST(Cors, OnlyOriginsOfTheList) {
  TestServer server({.cors_origins = {"https://a.example", "http://b.example:8000"}});
  const Answer allowed = server.ask(get("/echo", "Origin: http://b.example:8000\r\n"));
  EXPECT_EQ(allowed.headers.at("access-control-allow-origin"), "http://b.example:8000");
  EXPECT_EQ(allowed.headers.at("vary"), "Origin");
  EXPECT_NE(allowed.headers.at("access-control-expose-headers").find("X-Request-Id"), std::string::npos);
  for (const char* origin :
       {"", "Origin: https://a.example.evil\r\n", "Origin: HTTPS://A.example\r\n", "Origin: null\r\n"}) {
    const Answer other = server.ask(get("/echo", origin));
    EXPECT_EQ(other.status, 200);
    EXPECT_FALSE(other.headers.contains("access-control-allow-origin")) << origin;
    EXPECT_EQ(other.headers.at("vary"), "Origin");
  }
  // A page sees errors of the server itself, too.
  const Answer error = server.ask(get("/echo", "Origin: https://a.example\r\nExpect: x\r\n"));
  EXPECT_EQ(error.status, 417);
  EXPECT_EQ(error.headers.at("access-control-allow-origin"), "https://a.example");
}

TEST(Cors, Preflight) {
  TestServer server({.cors_origins = {"https://a.example"}, .api_keys = {"k"}});
  const auto ask = [&](const char* origin) {
    return server.ask(std::string("OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: ") + origin +
                      "\r\nAccess-Control-Request-Method: POST\r\n"
                      "Access-Control-Request-Headers: authorization, x-stainless-os\r\n\r\n");
  };
  const Answer allowed = ask("https://a.example");
  EXPECT_EQ(allowed.status, 204);
  EXPECT_EQ(allowed.headers.at("access-control-allow-origin"), "https://a.example");
  EXPECT_NE(allowed.headers.at("access-control-allow-methods").find("POST"), std::string::npos);
  EXPECT_EQ(allowed.headers.at("access-control-allow-headers"), "authorization, x-stainless-os");
  EXPECT_FALSE(allowed.headers.contains("content-length"));
  const Answer refused = ask("https://evil.example");
  EXPECT_EQ(refused.status, 204);
  EXPECT_FALSE(refused.headers.contains("access-control-allow-origin"));
  EXPECT_FALSE(refused.headers.contains("access-control-allow-methods"));
}

TEST(Cors, AnyOriginAndNone) {
  TestServer any({.cors_origins = {"*"}});
  const Answer answer = any.ask(get("/echo", "Origin: https://a.example\r\n"));
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "*");
  EXPECT_FALSE(answer.headers.contains("vary"));
  TestServer none;
  const Answer plain = none.ask(get("/echo", "Origin: https://a.example\r\n"));
  EXPECT_FALSE(plain.headers.contains("access-control-allow-origin"));
}

}  // namespace
}  // namespace kipp::http::testing
