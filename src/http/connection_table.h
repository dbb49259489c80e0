// The connections that an HTTP server has, and which of them have to go when there is no place for a new one. Private
// to http/. Single loop; the connections are owned by the tasks that run them and enter themselves for their lifetime.
//
// Only idle connections are cut, so no request under way is lost. Clients that have not sent a complete request are cut
// first, then clients without a credential, then clients with one (Standing). Each of these groups keeps a share of the
// places that the others cannot take. Within a group the address with the most connections loses those that have waited
// longest. So a flood from one address is cut at that address, and a client there that answers quickly keeps its
// connection.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "http/connection.h"

namespace sandbar::http {

class ConnectionTable {
 public:
  explicit ConnectionTable(size_t max) : max_(max) {}
  ConnectionTable(const ConnectionTable&) = delete;
  ConnectionTable& operator=(const ConnectionTable&) = delete;

  // `origin` stands for the address that the connection came from.
  void Add(HttpConnection* c, uint64_t origin) { live_.emplace(c, origin); }
  void Remove(HttpConnection* c) { live_.erase(c); }
  size_t size() const { return live_.size(); }
  bool full() const { return live_.size() >= max_; }

  // Cuts some connections, unless enough are about to end already. They leave the table soon after.
  void MakeRoom();
  // Cuts connections that are past their deadline. While three quarters of all places are taken, a client has only
  // `crowded` for its first complete request.
  void CutExpired(HttpConnection::Clock::time_point now, std::chrono::seconds crowded);
  void CutAll(Code why);

 private:
  size_t max_;
  std::unordered_map<HttpConnection*, uint64_t> live_;
};

}  // namespace sandbar::http
