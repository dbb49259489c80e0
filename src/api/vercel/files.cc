// Files in a session: read, write (a gzip'd tar, streamed through), make a directory.
#include <boost/json.hpp>

#include "api/body_source.h"
#include "api/call.h"
#include "api/errors.h"
#include "api/handlers.h"
#include "api/vercel/requests.h"
#include "wire/text.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

// v1 clients take the body of any answer but 404 for the file: what will not get better by trying again is one.
Error ReadError(Error error, bool v1) {
  if (v1 && AnswerFor(error.code).status < 500) error.code = Code::kNotFound;
  return error;
}

bool IsGzip(std::string_view content_type) {
  std::string_view type = wire::Trim(content_type.substr(0, content_type.find(';')));
  return wire::EqualsIgnoreCase(type, "application/gzip") || wire::EqualsIgnoreCase(type, "application/x-gzip");
}

}  // namespace

Task<> ReadFile(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(PathRequest request, ParseRead(text));
  std::string session = call->Param("session");
  auto file = co_await call->domain->files->Read(call->scope, std::move(session), std::move(request.path),
                                                 std::move(request.cwd));
  if (!file) co_return std::unexpected(ReadError(std::move(file).error(), call->v1()));
  auto sent = co_await call->ReplyBytes(file->get());
  if (!sent) co_return std::unexpected(ReadError(std::move(sent).error(), call->v1()));
  co_return sent;
}

Task<> WriteFiles(Call* call) {
  const http::HttpRequest& request = call->request();
  if (!IsGzip(request.Get("content-type")))
    co_return Fail(Code::kBadRequest, "fs/write takes a gzip'd tar: content-type must be application/gzip");
  std::optional<std::string> cwd;
  if (request.Has("x-cwd")) cwd = std::string(request.Get("x-cwd"));
  if (cwd && (!cwd->starts_with('/') || cwd->size() > 4096))
    co_return Fail(Code::kBadRequest, "x-cwd must be an absolute path");
  std::string session = call->Param("session");
  BodySource source(call->exchange);
  SB_CO_TRYV(co_await call->domain->files->WriteTar(call->scope, std::move(session), std::move(cwd), &source));
  json::object nothing;
  co_return co_await call->Reply(std::move(nothing));
}

Task<> MakeDir(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(PathRequest request, ParseMakeDir(text));
  std::string session = call->Param("session");
  SB_CO_TRYV(co_await call->domain->files->MakeDir(call->scope, std::move(session), std::move(request.path),
                                                   std::move(request.cwd), request.recursive));
  json::object nothing;
  co_return co_await call->Reply(std::move(nothing));
}

}  // namespace sandbar::api
