#include "spawner/machines/figures_page.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace sandbar::spawner {

FiguresPage& FiguresPage::operator=(FiguresPage&& o) noexcept {
  if (this == &o) return *this;
  Unmap();
  file_ = std::move(o.file_);
  ask_ = std::move(o.ask_);
  page_ = std::exchange(o.page_, nullptr);
  return *this;
}

void FiguresPage::Unmap() {
  if (page_ != nullptr) ::munmap(page_, protocol::kFiguresBytes);
  page_ = nullptr;
}

Result<FiguresPage> FiguresPage::Make() {
  FiguresPage out;
  out.file_ = Fd(::memfd_create("disk-figures", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  out.ask_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!out.file_ || !out.ask_) return FailErrno("make a page of disk figures");
  if (::ftruncate(out.file_.get(), protocol::kFiguresBytes) != 0) return FailErrno("size a page of disk figures");
  void* page = ::mmap(nullptr, protocol::kFiguresBytes, PROT_READ | PROT_WRITE, MAP_SHARED, out.file_.get(), 0);
  if (page == MAP_FAILED) return FailErrno("map a page of disk figures");
  out.page_ = static_cast<protocol::FiguresPage*>(page);
  constexpr int kSeals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (::fcntl(out.file_.get(), F_ADD_SEALS, kSeals) != 0) return FailErrno("seal a page of disk figures");
  return out;
}

void FiguresPage::Answered() const {
  uint64_t count = 0;
  [[maybe_unused]] ssize_t n = ::read(ask_.get(), &count, sizeof count);
}

void FiguresPage::Write(std::span<const protocol::DiskFigures> figures, int64_t at_ms) {
  protocol::WriteFigures(*page_, figures, at_ms);
  if (at_ms == 0) return;  // the machine has not started
  ::syscall(SYS_futex, &page_->sequence, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace sandbar::spawner
