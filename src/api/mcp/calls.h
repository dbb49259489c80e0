// MCP requests under way, by sender. Clients of the older era cancel a request over HTTP with another request, and
// leave the first connection open. Single loop; owned by the Api.
//
// `initialize` gives those clients a random id, which they repeat (Mcp-Session-Id). The server keeps nothing under this
// id and accepts any value. The id only separates the request ids of one client from those of another.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "async/task.h"

namespace sandbar::api {

class McpCalls {
 public:
  class Entry {
   public:
    explicit Entry(const asio::any_io_executor& ex) : event_(ex) {}
    void Cancel() {
      cancelled_ = true;
      event_.Notify();
    }
    // Ends when somebody cancels it.
    Task<> Wait() {
      while (!cancelled_) {
        SB_CO_TRYV(co_await event_.Wait());
      }
      co_return Result<>{};
    }

   private:
    Event event_;
    bool cancelled_ = false;
  };

  // Listed under `key` for as long as the entry lives; an empty key lists it nowhere.
  std::shared_ptr<Entry> Add(const std::string& key, const asio::any_io_executor& ex) {
    auto entry = std::make_shared<Entry>(ex);
    std::erase_if(entries_, [](const auto& e) { return e.second.expired(); });
    if (!key.empty()) entries_[key] = entry;
    return entry;
  }
  void Cancel(const std::string& key) {
    auto it = entries_.find(key);
    if (it == entries_.end()) return;
    if (auto entry = it->second.lock()) entry->Cancel();
  }

 private:
  std::map<std::string, std::weak_ptr<Entry>> entries_;
};

}  // namespace sandbar::api
