// The client's side of an upgraded HTTP connection: asks for another protocol and hands the byte stream over.
// Single loop.
//
//   SB_CO_TRY(auto answer, co_await DialUpgrade(std::move(request), "sandbar-tcp"));
//   if (answer.stream) …                // 101: the bytes are ours
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "http/byte_stream.h"
#include "http/client.h"

namespace sandbar::http {

struct UpgradeAnswer {
  int status = 0;
  std::vector<Header> headers;
  std::string body;                    // of a refusal, its first 64 KiB
  std::unique_ptr<ByteStream> stream;  // after 101
};

// `request` without body. Errors as HttpClient::Send; connecting and the answer's head have the connect deadline.
Task<UpgradeAnswer> DialUpgrade(ClientRequest request, std::string protocol, HttpClientOptions options = {});

}  // namespace sandbar::http
