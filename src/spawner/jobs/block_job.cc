#include "spawner/jobs/block_job.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "base/ids.h"
#include "base/log.h"
#include "os/mounts.h"
#include "os/openat.h"
#include "os/process.h"
#include "os/vmm_jail.h"
#include "spawner/disk/drive_dir.h"
#include "spawner/disk/vm_disk.h"
#include "spawner/machines/root_dir.h"

namespace sandbar::spawner {
namespace {

constexpr const char* kProgram = "/sbin/mke2fs";

// To read everything, and overlay's own attributes, which tell what was deleted and moved.
constexpr uint64_t kCapabilities = 1ULL << CAP_DAC_READ_SEARCH | 1ULL << CAP_SYS_ADMIN;

// The end of what it said.
std::string Words(int fd) {
  std::array<char, 300> text{};
  struct stat st{};
  if (::fstat(fd, &st) != 0) return {};
  const auto room = static_cast<off_t>(text.size());
  ssize_t n = ::pread(fd, text.data(), text.size(), st.st_size > room ? st.st_size - room : 0);
  std::string out(text.data(), n > 0 ? static_cast<size_t>(n) : 0);
  for (char& c : out)
    if (c < ' ' || c > '~') c = ' ';
  return out;
}

}  // namespace

std::string DriveFormat(const std::string& path) {
  if (IsBlockFormat(path + "/upper")) return "block";
  return DriveDir::Unused(path) ? "" : "dir";
}

Result<std::unique_ptr<Job>> BlockJob::OfSnapshot(JobFacts facts, JobGroup group, HostResources* host, uint64_t bytes) {
  const std::string source = facts.subjects.front();
  SB_TRY(std::string layer, host->disk->SnapshotLayer(source));
  SB_TRYV(CheckFormat(source, layer, false));
  std::unique_ptr<BlockJob> job(new BlockJob(std::move(facts), group, host));
  SB_TRY(job->slot_, host->disk->Create());
  SB_TRYV(host->disk->AssignLike(job->slot_.path, layer.substr(0, layer.rfind('/'))));
  SB_TRYV(job->Start(layer.substr(0, layer.rfind('/')), job->slot_.path + "/upper", VmDiskBytes(bytes)));
  return job;
}

Result<std::unique_ptr<Job>> BlockJob::OfDrive(JobFacts facts, JobGroup group, HostResources* host) {
  SB_TRY(std::string path, host->disk->DrivePath(facts.subjects.front()));
  const std::string target = facts.makes;
  std::unique_ptr<BlockJob> job(new BlockJob(std::move(facts), group, host));
  SB_TRYV(host->disk->CreateDrive(target, DriveDir::Size(path), DiskOwner{}));
  SB_TRY(std::string place, host->disk->DrivePath(target));
  SB_TRYV(host->disk->AssignLike(place, path));
  SB_TRYV(job->Start(path, place + "/upper", VmDriveBytes(path)));
  return job;
}

Result<> BlockJob::Start(const std::string& tree, const std::string& upper, uint64_t bytes) {
  if (!host_->microvm) return Fail(Code::kUnsupported, "there are no microVMs here: " + host_->no_microvm);
  SB_TRY(upper_, os::OpenPath(upper, O_RDONLY | O_DIRECTORY));
  // Somebody else may be at the same: whoever is last wins, and both are whole.
  half_made_ = NewLabel("disk.", 8);
  SB_TRY(Fd disk, CreateVmDisk(upper_.get(), bytes, half_made_.c_str()));
  SB_TRY(Fd files, os::CloneTree(AT_FDCWD, tree));
  SB_TRYV(os::SetMountAttributes(files.get(),
                                 MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  SB_TRY(Fd jail_tree, os::CloneTree(AT_FDCWD, host_->microvm->jail_tree, true));
  SB_TRY(Fd program, os::OpenPath(kProgram, O_PATH));
  errors_ = Fd(::memfd_create("errors", MFD_CLOEXEC));
  SB_TRY(auto join, OpenJoin());
  os::VmmPlan plan;
  for (const Fd& fd : join) plan.join.push_back(fd.get());
  plan.root = jail_tree.get();
  plan.mount_point = InMountDir("mp");
  plan.capabilities = kCapabilities;
  plan.keep = {disk.get(), files.get()};
  plan.program = program.get();
  plan.errors = errors_.get();
  plan.largest_file = bytes;
  plan.argv = FormatWords(bytes);
  plan.argv.insert(plan.argv.end(), {"-d", "/proc/self/fd/4", "/proc/self/fd/3"});
  sock_fprog filter{static_cast<unsigned short>(host_->microvm->filter.size()),
                    const_cast<sock_filter*>(host_->microvm->filter.data())};
  plan.filter = &filter;
  SB_TRY(os::Child child, os::StartVmm(std::move(plan)));
  Watch(std::move(child.pidfd));
  status_ = std::move(child.status);
  return {};
}

BlockJob::~BlockJob() {
  Kill();
  if (slot_.name.empty()) return;
  if (auto r = host_->disk->Destroy(slot_); !r) log::Warn("{}", r.error().message);
}

Result<> BlockJob::Finish() {
  SB_TRY(int status, Reap());
  if (auto started = os::ReadJailStatus(status_.get()); !started)
    return std::unexpected(std::move(started).error().Context("convert " + facts().makes));
  if (status != 0)
    return Fail(Code::kNoSpace,
                "its files cannot be put on a block device, which may be too small: " + Words(errors_.get()));
  // mke2fs does not end before its bytes are on the disk.
  if (::renameat(upper_.get(), half_made_.c_str(), upper_.get(), kVmDiskFile) != 0) return FailErrno("name a device");
  if (slot_.name.empty()) return {};
  SB_TRYV(host_->disk->Publish(slot_, facts().makes));
  slot_ = {};
  return {};
}

}  // namespace sandbar::spawner
