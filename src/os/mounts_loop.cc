#include "os/mounts_loop.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "os/openat.h"

namespace sandbar::os {

Result<LoopDevice> AttachLoop(int file, bool read_only) {
  SB_TRY(Fd control, OpenPath("/dev/loop-control", O_RDWR));
  for (int attempt = 0; attempt < 64; ++attempt) {
    int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) return FailErrno("no free loop device");
    std::string path = "/dev/loop" + std::to_string(number);
    auto device = OpenPath(path, read_only ? O_RDONLY : O_RDWR);
    if (!device) return std::unexpected(std::move(device).error());
    loop_config config{};
    config.fd = static_cast<uint32_t>(file);
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR | (read_only ? LO_FLAGS_READ_ONLY : 0);
    if (::ioctl(device->get(), LOOP_CONFIGURE, &config) == 0) return LoopDevice{path, std::move(*device)};
    // Someone else took it between the question and the answer.
    if (errno != EBUSY) return FailErrno("configure " + path);
  }
  return Fail(Code::kUnavailable, "loop devices are taken faster than we can claim one");
}

Result<LoopDevice> FindLoop(int file) {
  struct stat want{};
  if (::fstat(file, &want) != 0) return FailErrno("stat backing file");
  auto block = OpenPath("/sys/block", O_RDONLY | O_DIRECTORY);
  if (!block) return std::unexpected(std::move(block).error());
  SB_TRY(auto names, ListDir(block->get()));
  for (const auto& name : names) {
    if (!name.starts_with("loop")) continue;
    // Free devices have no loop/ directory; opening one of them would pin it for nothing.
    if (::faccessat(block->get(), (name + "/loop").c_str(), F_OK, 0) != 0) continue;
    auto device = OpenPath("/dev/" + name, O_RDWR);
    loop_info64 info{};
    if (!device || ::ioctl(device->get(), LOOP_GET_STATUS64, &info) != 0) continue;
    if (info.lo_inode == want.st_ino && info.lo_device == want.st_dev)
      return LoopDevice{"/dev/" + name, std::move(*device)};
  }
  return Fail(Code::kNotFound, "no loop device");
}

}  // namespace sandbar::os
