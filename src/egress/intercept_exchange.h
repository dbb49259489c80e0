// One request of an intercepted connection and its response: the state that the request half (RequestUpload) and the
// response half (ResponseDownload) share while they run side by side. Private to egress/. Single loop; owned by the
// InterceptConnection, which begins a new one for each request.
#pragma once

#include <string>

#include "egress/deadline.h"
#include "http/byte_stream.h"
#include "http/message_reader.h"

namespace sandbar::egress {

struct InterceptExchange {
  http::ByteStream* guest = nullptr;
  http::MessageReader* request = nullptr;  // reads from `guest`
  Deadline* deadline = nullptr;

  bool serving = false;        // the request's head is complete
  bool websocket = false;      // the request asks for an upgrade that is carried
  bool owes_continue = false;  // the guest waits for "100 Continue"
  std::string first_piece{};   // of the request's body, read before anything was sent on
  bool uploaded = false;       // the whole request was sent to the upstream
  bool guest_failed = false;   // the guest went away or broke the protocol
  bool answered = false;       // some byte of an answer may have been written
  bool keep = false;           // the guest's connection serves another request afterwards
};

}  // namespace sandbar::egress
