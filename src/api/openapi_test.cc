#include "api/openapi.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <set>

#include "assets/assets.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

TEST(OpenApi, SaysSomethingAboutEveryRouteAndNothingAboutOthers) {
  json::value source = json::parse(assets::kOpenApiJson);
  std::set<std::string> described, served;
  for (const auto& [key, value] : source.at("operations").as_object()) {
    described.emplace(key);
    EXPECT_TRUE(value.as_object().contains("summary")) << key;
  }
  for (const Route& route : RouteTable()) served.insert(std::string(route.method) + " " + std::string(route.pattern));
  for (const std::string& row : served) EXPECT_TRUE(described.contains(row)) << "add to sdk/openapi.json: " << row;
  for (const std::string& row : described) EXPECT_TRUE(served.contains(row)) << "no such route any more: " << row;
}

TEST(OpenApi, ListsEveryVersionOfARouteWithItsOwnId) {
  json::value document = json::parse(OpenApiText(RouteTable(), assets::kOpenApiJson, "9.9"));
  EXPECT_EQ(document.at("info").at("version").as_string(), "9.9");
  std::set<std::string> ids;
  size_t count = 0;
  for (const auto& [path, item] : document.at("paths").as_object()) {
    for (const auto& [method, operation] : item.as_object()) {
      ids.emplace(operation.at("operationId").as_string());
      ++count;
    }
  }
  EXPECT_EQ(count, ExpandRoutes(RouteTable()).size());
  EXPECT_EQ(ids.size(), count);
}

TEST(OpenApi, AnOperationIsSpelledOut) {
  const Route rows[] = {{"POST", "/v2|v3/things/{thing}/{port}", nullptr, Access::kOperator},
                        {"GET", "/open", nullptr, Access::kOpen},
                        {"GET", "/forgotten", nullptr, Access::kViewer}};
  std::string_view source = R"({"info":{},"operations":{
    "POST /v2|v3/things/{thing}/{port}": {"operationId":"make","summary":"s","query":{"q":{"type":"string"}},
      "body":{"application/json":{"type":"object"}},"status":"201","answer":{"text/plain":{"type":"string"}}},
    "GET /open": {"operationId":"open","summary":"o","status":"default"}}})";
  json::value document = json::parse(OpenApiText(rows, source, "1"));
  const json::value& made = document.at("paths").at("/v3/things/{thing}/{port}").at("post");
  EXPECT_EQ(json::serialize(made.at("parameters")),
            R"([{"name":"thing","in":"path","schema":{"type":"string"},"required":true},)"
            R"({"name":"port","in":"path","schema":{"type":"integer"},"required":true},)"
            R"({"name":"q","in":"query","schema":{"type":"string"}}])");
  EXPECT_EQ(made.at("operationId").as_string(), "make_v3");
  EXPECT_EQ(json::serialize(made.at("requestBody")),
            R"({"required":true,"content":{"application/json":{"schema":{"type":"object"}}}})");
  EXPECT_EQ(json::serialize(made.at("responses")),
            R"({"201":{"description":"done","content":{"text/plain":{"schema":{"type":"string"}}}},)"
            R"("default":{"$ref":"#/components/responses/Error"}})");
  EXPECT_FALSE(made.as_object().contains("security"));
  const json::value& open = document.at("paths").at("/open").at("get");
  EXPECT_EQ(json::serialize(open.at("security")), "[]");
  EXPECT_EQ(open.at("responses").as_object().size(), 1U);
  EXPECT_TRUE(document.at("paths").as_object().contains("/forgotten"));
}

TEST(Guide, HasTheServersAddressEverywhere) {
  std::string guide = assets::Guide("http://there.test:1");
  EXPECT_NE(guide.find("http://there.test:1"), std::string::npos);
  EXPECT_EQ(guide.find("{{"), std::string::npos);
}

}  // namespace
}  // namespace sandbar::api
