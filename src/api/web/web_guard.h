// Keeps other web pages away from the API: which Host a request may name and which Origin may have sent it. Looked at
// before anything else, routing and tokens included. Built once from the configuration; const afterwards, loop thread.
//
// A Host must be one of the server's configured names, with its port, so a rebound DNS name reaches nothing. Over a
// loopback connection, loopback's own names may have any port: that is a forwarded port (`ssh -L`), and DNS cannot
// rebind these names. `sb-*` under the preview domain is always a preview and never the API.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/server.h"

namespace sandbar::api {

struct WebGuardConfig {
  std::vector<std::string> host_names;  // without port: "localhost", "127.0.0.1", "[::1]", a configured name
  uint16_t port = 0;
  bool tls = false;
  std::string public_url;      // where a reverse proxy publishes us, e.g. "https://sandbar.example.com"; may be empty
  std::string preview_domain;  // previews are sb-<label>.<this>, and sb-<label>.localhost
};

class WebGuard {
 public:
  enum class Place { kApi, kPreview, kForeign };

  explicit WebGuard(const WebGuardConfig& config);

  // `loopback`: the connection came over this machine's loopback.
  Place Classify(std::string_view host, bool loopback = false) const;
  // "sb-x" of "sb-x.localhost:8787"; empty when the Host is no preview's.
  std::string PreviewLabel(std::string_view host) const;
  // kBadRequest when the port of the Host is not a number from 1 to 65535: the Host is repeated in links.
  static Result<> CheckPort(std::string_view host);
  // kMisdirected for a foreign Host, kNotFound for a preview, kForbidden for a request that a foreign page sent.
  Result<> Check(const http::HttpRequest& request, bool loopback = false) const;

 private:
  std::vector<std::string> authorities_;  // "name:port", and "name" where the port is the scheme's own
  std::vector<std::string> origins_;
  std::vector<std::string> preview_suffixes_;  // ".localhost" always, and that of the configured domain
  bool tls_;
};

// Of "127.0.0.1:4711" or "[::1]:4711", as HttpExchange::peer() has it.
bool CameOverLoopback(std::string_view peer);
// The address in it, without port and brackets.
std::string AddressOf(std::string peer);

}  // namespace sandbar::api
