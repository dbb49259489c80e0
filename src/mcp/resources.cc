#include "mcp/resources.h"

#include <boost/json.hpp>

#include "base/base64.h"
#include "mcp/file_text.h"
#include "mcp/open.h"
#include "wire/text.h"
#include "wire/url.h"

namespace sandbar::mcp {
namespace {

constexpr std::string_view kScheme = "sandbar://";

std::string UriOf(std::string_view sandbox, std::string_view path) {
  std::string uri(kScheme);
  uri += wire::EncodeComponent(sandbox);
  while (!path.empty()) {
    const size_t slash = path.find('/');
    if (slash != 0) uri += "/" + wire::EncodeComponent(path.substr(0, slash));
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
  }
  return uri;
}

struct Place {
  std::string sandbox, path;
};

Result<Place> Parse(std::string_view uri) {
  if (!uri.starts_with(kScheme)) return Fail(Code::kBadRequest, "uri: must be sandbar://<sandbox>/<path>");
  auto parts = wire::SplitPath("/" + std::string(uri.substr(kScheme.size())));
  if (!parts || parts->size() < 2) return Fail(Code::kBadRequest, "uri: must be sandbar://<sandbox>/<path>");
  Place place;
  place.sandbox = parts->front();
  for (size_t i = 1; i < parts->size(); ++i) place.path += "/" + (*parts)[i];
  return place;
}

Task<std::string> ReadWhole(const ToolCall* call, std::string session, std::string path) {
  std::optional<std::string> cwd;
  auto file = co_await call->connection->domain->files->Read(call->connection->scope, std::move(session),
                                                             std::move(path), std::move(cwd));
  if (!file) co_return std::unexpected(std::move(file).error());
  std::string bytes;
  while (true) {
    SB_CO_TRY(std::string piece, co_await (*file)->Next());
    if (piece.empty()) co_return bytes;
    bytes += piece;
    if (bytes.size() > kMaxImage) co_return Fail(Code::kTooLarge, "the file has more than 3 MiB");
  }
}

}  // namespace

json::object LinkTo(std::string_view sandbox, const json::object& artifact) {
  const std::string_view path = artifact.at("path").as_string();
  const size_t slash = path.rfind('/');
  return {{"type", "resource_link"},
          {"uri", UriOf(sandbox, path)},
          {"name", slash == std::string_view::npos ? path : path.substr(slash + 1)},
          {"description", path},
          {"mimeType", artifact.at("mime")},
          {"size", artifact.at("size")}};
}

json::object ListResources() {
  return {{"resources", json::array{}}};
}

json::object ListResourceTemplates() {
  json::object file{{"uriTemplate", "sandbar://{sandbox}/{+path}"},
                    {"name", "file"},
                    {"description", "A file of a sandbox, by its absolute path"}};
  return {{"resourceTemplates", json::array{std::move(file)}}};
}

Task<json::object> ReadResource(const Connection* connection, std::string uri) {
  SB_CO_TRY(Place place, Parse(uri));
  if (!connection->sandbox_argument && place.sandbox != connection->sandbox)
    co_return Fail(Code::kBadRequest, "uri: this connection is about the sandbox " + connection->sandbox);
  ToolCall call;
  call.connection = connection;
  call.sandbox = place.sandbox;
  SB_CO_TRY(Opened opened, co_await FindSandbox(&call));
  std::string session = opened.session.id;
  SB_CO_TRY(std::string bytes, co_await ReadWhole(&call, std::move(session), std::move(place.path)));
  json::object content{{"uri", uri}};
  const std::string_view image = ImageType(bytes);
  if (image.empty() && !LooksBinary(bytes) && wire::IsUtf8(bytes)) {
    content["mimeType"] = "text/plain";
    content["text"] = bytes;
  } else {
    content["mimeType"] = image.empty() ? "application/octet-stream" : image;
    content["blob"] = EncodeBase64(bytes);
  }
  co_return json::object{{"contents", json::array{std::move(content)}}};
}

}  // namespace sandbar::mcp
