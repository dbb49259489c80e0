// Calls on single files, over the real HTTP server.
#include <gtest/gtest.h>

#include <cerrno>

#include "support/api/api_fixture.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

constexpr char kFiles[] = "/x/v1/sessions/sbx_1/files";

class ApiFilesTest : public ApiFixture {};

TEST_F(ApiFilesTest, ListsAndTellsWhatFilesAre) {
  protocol::FileEntry link{"s", protocol::FileType::kSymlink, 3, 0777, 1, 2, 1, 0, 1'500'000'000, "x/y"};
  protocol::FileEntry odd{"a\xff", protocol::FileType::kFile, 1ULL << 40, 04, 0, 0, 1, 0, 0, ""};
  domain_.file_list = {{link, odd}, true};
  json::object list = Ask("GET", std::string(kFiles) + "/list?path=%2Ftmp&cwd=a&after=r&limit=2").Json();
  EXPECT_EQ(list.at("more"), true);
  EXPECT_EQ(json::serialize(list.at("entries").at(0)),
            R"({"name":"s","type":"symlink","size":3,"mode":"0777","uid":1,"gid":2,"links":1,"accessedAt":0,)"
            R"("modifiedAt":1500,"target":"x/y"})");
  EXPECT_EQ(list.at("entries").at(1).at("name"), "a\xef\xbf\xbd");
  EXPECT_EQ(list.at("entries").at(1).at("nameBase64"), "Yf8=");
  EXPECT_EQ(list.at("entries").at(1).at("mode"), "0004");
  OnLoop([&] {
    EXPECT_EQ(domain_.file_target->session, "sbx_1");
    EXPECT_EQ(domain_.file_target->path, "/tmp");
    EXPECT_EQ(domain_.file_target->cwd, "a");
    EXPECT_FALSE(domain_.file_target->sudo);
    EXPECT_EQ(domain_.list_after, "r");
    EXPECT_EQ(domain_.list_limit, 2U);
  });
  EXPECT_EQ(Ask("GET", std::string(kFiles) + "/stat?path=s&follow=false&sudo=true").Json().at("file").at("path"), "s");
  OnLoop([&] {
    EXPECT_FALSE(domain_.flag);
    EXPECT_TRUE(domain_.file_target->sudo);
  });
  for (const char* wrong :
       {"/list", "/list?path=", "/list?path=x&limit=0", "/list?path=x&limit=1001", "/stat", "/list?path=x&limit=many",
        "/content?path=x&offset=-1", "/content?path=x&length=0", "/content?path=x&offset=1152921504606846977"}) {
    EXPECT_EQ(Ask("GET", std::string(kFiles) + wrong).status, 400) << wrong;
  }
}

TEST_F(ApiFilesTest, PartsOfFiles) {
  domain_.pieces = {"part"};
  EXPECT_EQ(Ask("GET", std::string(kFiles) + "/content?path=f&offset=5&length=4").body, "part");
  OnLoop([&] {
    EXPECT_EQ(domain_.file_range->offset, 5U);
    EXPECT_EQ(domain_.file_range->length, 4U);
  });
  auto put = [&](const std::string& query) {
    return Ask("PUT", std::string(kFiles) + "/content?path=f" + query, "abc");
  };
  auto how = [&] { return OnLoop([&] { return *domain_.file_write; }); };
  EXPECT_EQ(put("").Json().at("written"), 3);
  EXPECT_TRUE(how().whole && how().create && !how().exclusive);
  EXPECT_EQ(put("&offset=7&create=false&mode=0600").status, 200);
  EXPECT_TRUE(!how().whole && !how().create && how().offset == 7 && how().mode == 0600);
  EXPECT_EQ(put("&append=true").status, 200);
  EXPECT_TRUE(!how().whole && how().append);
  EXPECT_EQ(put("&offset=0&truncate=true&exclusive=true").status, 200);
  EXPECT_TRUE(!how().whole && how().truncate && how().exclusive);
  for (const char* wrong :
       {"&mode=8", "&mode=17777", "&offset=x", "&append=true&offset=1", "&create=false&exclusive=true"})
    EXPECT_EQ(put(wrong).status, 400) << wrong;
}

TEST_F(ApiFilesTest, ChangesOfFiles) {
  auto post = [&](const std::string& what, const std::string& body = "") {
    return Ask("POST", std::string(kFiles) + what, body).status;
  };
  auto change = [&]<class T>(T) { return OnLoop([&] { return std::get<T>(*domain_.file_edit); }); };
  EXPECT_EQ(post("/rename?path=a&to=b"), 200);
  EXPECT_FALSE(change(protocol::RenameFile()).replace);
  EXPECT_EQ(change(protocol::RenameFile()).to, "b");
  EXPECT_EQ(post("/remove?path=a&recursive=true"), 200);
  EXPECT_EQ(change(protocol::RemoveFile()).what, protocol::RemoveFile::What::kTree);
  EXPECT_EQ(post("/remove?path=a&type=file"), 200);
  EXPECT_EQ(change(protocol::RemoveFile()).what, protocol::RemoveFile::What::kFile);
  EXPECT_EQ(post("/link?path=a&target=b&symbolic=false"), 200);
  EXPECT_FALSE(change(protocol::MakeLink()).symbolic);
  EXPECT_EQ(post("/mkdir?path=a&parents=true&mode=0700"), 200);
  EXPECT_EQ(change(protocol::MakeDir()).mode, 0700);
  EXPECT_EQ(post("/attributes?path=a", R"({"mode":"0644","uid":0,"size":9,"modifiedAt":-1})"), 200);
  const auto set = change(protocol::SetAttributes());
  EXPECT_TRUE(set.mode == 0644U && set.owner == 0U && !set.group && set.size == 9U && set.modified_ns == -1'000'000);
  EXPECT_EQ(post("/attributes?path=a&follow=false", R"({"size":9})"), 400);
  for (const char* wrong : {R"({"mode":"x"})", R"({"uid":-1})", R"({"gid":4294967295})", R"({"size":-1})", "[]",
                            R"({"modifiedAt":9223372036854775807})", R"({"owner":1})"})
    EXPECT_EQ(post("/attributes?path=a", wrong), 400) << wrong;
  for (const char* wrong : {"/rename?path=a", "/rename?to=a", "/link?path=a", "/remove", "/remove?path=a&type=x"})
    EXPECT_EQ(post(wrong), 400) << wrong;
  OnLoop([&] { domain_.fail = Error{Code::kFileError, "rename a to b: File exists", EEXIST}; });
  Answer answer = Ask("POST", std::string(kFiles) + "/rename?path=a&to=b");
  EXPECT_EQ(answer.Code(), "file_error");
  EXPECT_EQ(answer.Json().at("error").at("reason"), "exists");
}

}  // namespace
}  // namespace sandbar::api
