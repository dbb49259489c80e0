// Says on stderr, once, that standard input was given and is not passed on to the command in the sandbox. Terminals,
// /dev/null and inputs that are closed or empty are no reason to say anything.
//
//   StdinRemark remark;     // looks at what is there now: a file, bytes in a pipe
//   …                       // the command runs
//   remark.Look();          // and at what came meanwhile
#pragma once

namespace sandbar::cli {

// Whether this descriptor has bytes that nobody has read. Never waits and takes nothing away.
bool HasUnreadBytes(int fd);

class StdinRemark {
 public:
  StdinRemark() { Look(); }
  void Look();

 private:
  bool said_ = false;
};

}  // namespace sandbar::cli
