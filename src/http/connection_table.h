// The connections that an HTTP server has, and which of them have to go when there is no place for a new one. Private
// to http/. Single loop; the connections are owned by the tasks that run them and enter themselves for their lifetime.
//
// Only connections that wait are cut: nothing of a request under way is lost. Whoever has not sent one whole request
// goes before those that have, and these before clients that have shown a credential (Standing). Each kind keeps a
// share that the others cannot take, so that a flood of any one of them leaves room for the rest. Among its like, the
// address with the most connections loses those that have waited longest: a flood from one address makes room at its
// own cost, also when an honest client has the same address and answers quickly.
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
  // Cuts what is past its deadline. While three quarters of all places are taken, whoever has not sent one whole
  // request has `crowded` for it and no more.
  void CutExpired(HttpConnection::Clock::time_point now, std::chrono::seconds crowded);
  void CutAll(Code why);

 private:
  size_t max_;
  std::unordered_map<HttpConnection*, uint64_t> live_;
};

}  // namespace sandbar::http
