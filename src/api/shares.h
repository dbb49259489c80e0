// Places for requests under way. A project may hold at most as many places as are free. So one project gets half of all
// places, two get a third each, and some places are always free for the next project. Single loop; the owner outlives
// the places.
//
//   Shares shares(1536);
//   auto place = shares.Take("team/project", "sandbox");
//   if (!place) …                       // kTooMany, and it says whose share is used up
#pragma once

#include <map>
#include <string>
#include <utility>

#include "base/result.h"

namespace sandbar::api {

class Shares {
 public:
  // One place, given back when it is destroyed.
  class Place {
   public:
    Place(Shares* owner, std::string project, std::string sandbox)
        : owner_(owner), project_(std::move(project)), sandbox_(std::move(sandbox)) {}
    Place(Place&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)),
          project_(std::move(other.project_)),
          sandbox_(std::move(other.sandbox_)) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(owner_, other.owner_);
      project_.swap(other.project_);
      sandbox_.swap(other.sandbox_);
      return *this;
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place() {
      if (owner_ != nullptr) owner_->GiveBack(project_, sandbox_);
    }

   private:
    Shares* owner_;
    std::string project_, sandbox_;
  };

  // `weight`: how many a project may have for each that is free.
  explicit Shares(size_t in_all, size_t weight = 1) : in_all_(in_all), weight_(weight) {}
  Shares(const Shares&) = delete;
  Shares& operator=(const Shares&) = delete;

  // kTooMany: no place. A sandbox may hold at most as many places as its project may still take.
  Result<Place> Take(const std::string& project, const std::string& sandbox);
  size_t open() const { return open_; }

 private:
  struct Project {
    size_t open = 0;
    std::map<std::string, size_t> sandboxes;
  };
  void GiveBack(const std::string& project, const std::string& sandbox);

  size_t in_all_;
  size_t weight_;
  size_t open_ = 0;
  std::map<std::string, Project> projects_;
};

}  // namespace sandbar::api
