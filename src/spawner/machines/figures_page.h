// The page in which the spawner tells a class 1 machine how large its disks are and what is free on them
// (protocol/disk_figures.h), and the eventfd at which the machine asks for it. Made with the machine's first process.
// Only this process can write the page: the kernel seals the file against every other writer. Single thread.
//
//   SB_TRY(FiguresPage page, FiguresPage::Make());
//   … the first process gets page.fds(); page.CloseFile() …
//   page.Write(figures);
#pragma once

#include <span>
#include <utility>

#include "base/fd.h"
#include "base/result.h"
#include "protocol/disk_figures.h"
#include "protocol/machine_init.h"

namespace sandbar::spawner {

class FiguresPage {
 public:
  FiguresPage() = default;
  FiguresPage(FiguresPage&& o) noexcept
      : file_(std::move(o.file_)), ask_(std::move(o.ask_)), page_(std::exchange(o.page_, nullptr)) {}
  FiguresPage& operator=(FiguresPage&& o) noexcept;
  ~FiguresPage() { Unmap(); }

  static Result<FiguresPage> Make();
  explicit operator bool() const { return page_ != nullptr; }
  protocol::FiguresFds fds() const { return {file_.get(), ask_.get()}; }
  // The machine's process has its own reference.
  void CloseFile() { file_.Reset(); }
  // Readable when the machine asks.
  int ask() const { return ask_.get(); }
  // Takes the question.
  void Answered() const;
  // Wakes who waits for figures. `at_ms`: os::BootTimeMs(), or 0 for figures that are not measured.
  void Write(std::span<const protocol::DiskFigures> figures, int64_t at_ms);

 private:
  void Unmap();

  Fd file_, ask_;
  protocol::FiguresPage* page_ = nullptr;
};

}  // namespace sandbar::spawner
