#include "sandbox/commands/command_log.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/bytes.h"
#include "base/log.h"

namespace sandbar::sandbox {
namespace {

constexpr size_t kHeader = 5;
constexpr uint8_t kHoleStream = 0;
constexpr uint32_t kMaxRecord = 1 << 20;
constexpr uint64_t kMinPiece = 1024;
constexpr uint64_t kMaxOffset = 1ULL << 62;  // an agent that claims more is lying; keeps sums from wrapping

std::string SegmentName(uint64_t offset) {
  return fmt::format("{:020}", offset);
}

struct RecordHead {
  uint8_t stream = 0;
  uint32_t length = 0;
};

// Nothing when the bytes cannot be a record's head.
std::optional<RecordHead> ParseHead(std::string_view bytes) {
  ByteReader r(bytes);
  RecordHead h{r.U8(), r.U32()};
  if (!r.ok() || h.stream > 2 || h.length == 0 || h.length > kMaxRecord) return std::nullopt;
  if (h.stream == kHoleStream && h.length != 8) return std::nullopt;
  return h;
}

Result<std::vector<uint64_t>> ListSegments(const std::string& dir) {
  std::vector<uint64_t> out;
  std::error_code ec;
  for (std::filesystem::directory_iterator it(dir, ec), end; !ec && it != end; it.increment(ec)) {
    std::string name = it->path().filename().string();
    if (name.size() != 20 || name.find_first_not_of("0123456789") != std::string::npos) continue;
    out.push_back(std::strtoull(name.c_str(), nullptr, 10));
  }
  if (ec && ec != std::errc::no_such_file_or_directory) return Fail(Code::kIo, "list " + dir + ": " + ec.message());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

Result<CommandLog::State> CommandLog::Scan(const std::string& dir) {
  State state;
  SB_TRY(state.segments, ListSegments(dir));
  if (state.segments.empty()) return state;
  state.end = state.segments.back();
  Fd fd(::open((dir + "/" + SegmentName(state.end)).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return FailErrno("open log segment");
  struct stat st{};
  if (::fstat(fd.get(), &st) != 0) return FailErrno("stat log segment");
  const auto size = static_cast<uint64_t>(st.st_size);
  std::array<char, kHeader + 8> buf{};
  for (;;) {
    ssize_t n = ::pread(fd.get(), buf.data(), buf.size(), static_cast<off_t>(state.tail_size));
    if (n < 0) return FailErrno("read log segment");
    auto head = ParseHead(std::string_view(buf.data(), static_cast<size_t>(n)));
    if (!head || state.tail_size + kHeader + head->length > size) break;
    uint64_t advance = head->length;
    if (head->stream == kHoleStream) advance = ByteReader(std::string_view(buf.data() + kHeader, 8)).U64();
    state.end += advance;
    state.tail_size += kHeader + head->length;
  }
  // A write that a kill cut short: the agent still has those bytes and sends them again.
  if (state.tail_size != size && ::ftruncate(fd.get(), static_cast<off_t>(state.tail_size)) != 0) {
    return FailErrno("truncate log segment");
  }
  return state;
}

Result<uint64_t> CommandLog::Drop(const std::string& dir) {
  SB_TRY(State state, Scan(dir));
  ByteWriter w;
  w.U8(kHoleStream);
  w.U32(8);
  w.U64(state.end);
  const std::string hole = w.Take();
  if (state.segments.empty() || (state.segments.size() == 1 && state.tail_size <= hole.size())) return state.tail_size;
  // The hole takes the place of the first segment before the others go: a kill in between loses no count.
  const std::string next = dir + "/hole";
  Fd fd(::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd || ::write(fd.get(), hole.data(), hole.size()) != static_cast<ssize_t>(hole.size()))
    return FailErrno("write log segment");
  if (::rename(next.c_str(), (dir + "/" + SegmentName(0)).c_str()) != 0) return FailErrno("replace log segment");
  for (uint64_t segment : state.segments) {
    if (segment > 0) ::unlink((dir + "/" + SegmentName(segment)).c_str());
  }
  return hole.size();
}

CommandLog::CommandLog(Core* core, std::string dir, State state)
    : core_(core),
      dir_(std::move(dir)),
      segments_(std::move(state.segments)),
      tail_size_(state.tail_size),
      end_(state.end),
      changed_(core->ex) {}

CommandLog::~CommandLog() {
  if (held_) core_->logs.End(command_);
}

void CommandLog::Account(std::string session, std::string command) {
  session_ = std::move(session);
  command_ = std::move(command);
  core_->logs.Begin(command_);
  held_ = true;
}

void CommandLog::LetGo() {
  if (!held_ || !finished_ || !pins_.empty()) return;
  held_ = false;
  core_->logs.End(command_);
}

void CommandLog::Append(uint64_t offset, uint8_t stream, std::string_view bytes) {
  if (offset > kMaxOffset) return;
  if (offset > received()) Hole(received(), offset - received());
  const uint64_t known = received() - offset;
  if (known >= bytes.size()) return;
  bytes.remove_prefix(known);
  while (!bytes.empty()) {
    // Records never straddle a segment's end: a piece fills the room that is left, or goes into the next segment.
    const uint64_t segment = core_->config.log_segment_bytes;
    uint64_t room = segment - std::min(segment, tail_size_ + kHeader);
    if (room < kMinPiece && room < bytes.size()) room = segment - kHeader;
    auto piece = bytes.substr(0, std::min<size_t>(bytes.size(), room));
    Write(stream, piece);
    bytes.remove_prefix(piece.size());
  }
  changed_.Notify();
}

void CommandLog::Hole(uint64_t offset, uint64_t bytes) {
  // Only what lies beyond the bytes that we have is missing.
  if (offset > kMaxOffset || bytes > kMaxOffset) return;
  const uint64_t until = offset + bytes;
  if (until <= received()) return;
  lost_ += until - received();
  FlushLost();
  changed_.Notify();
}

void CommandLog::Note(std::string_view line) {
  Append(received(), 2, line);
}

void CommandLog::Finish() {
  if (lost_ > 0 && !FlushLost()) {
    // Nothing can be written: readers of this process at least learn how much is missing.
    end_ += std::exchange(lost_, 0);
  }
  if (!command_.empty() && !finished_) {
    // The last segment counted as a whole one so far.
    const auto segment = static_cast<int64_t>(core_->config.log_segment_bytes);
    if (!segments_.empty()) core_->logs.Change(session_, static_cast<int64_t>(tail_size_) - segment);
  }
  finished_ = true;
  LetGo();
  tail_.Reset();
  changed_.Notify();
}

uint64_t CommandLog::AckLimit() const {
  uint64_t limit = received();
  for (const uint64_t* position : pins_) {
    if (*position < end_) limit = std::min(limit, *position);
  }
  return limit;
}

void CommandLog::ReleasePins() {
  pins_.clear();
  Moved();
}

void CommandLog::Write(uint8_t stream, std::string_view bytes) {
  if ((lost_ > 0 && !FlushLost()) || !WriteRecord(stream, bytes)) {
    lost_ += bytes.size();
    return;
  }
  end_ += bytes.size();
}

bool CommandLog::FlushLost() {
  if (lost_ == 0) return true;
  ByteWriter w;
  w.U64(lost_);
  if (!WriteRecord(kHoleStream, w.str())) return false;
  end_ += std::exchange(lost_, 0);
  return true;
}

bool CommandLog::WriteRecord(uint8_t stream, std::string_view bytes) {
  const bool full = tail_size_ > 0 && tail_size_ + kHeader + bytes.size() > core_->config.log_segment_bytes;
  if ((segments_.empty() || full) && !Roll()) return false;
  if (!tail_) {
    tail_ = Fd(::open((dir_ + "/" + SegmentName(segments_.back())).c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!tail_) return false;
  }
  ByteWriter head;
  head.U8(stream);
  head.U32(static_cast<uint32_t>(bytes.size()));
  std::string header = head.Take();
  std::array<iovec, 2> parts = {iovec{header.data(), header.size()},
                                iovec{const_cast<char*>(bytes.data()), bytes.size()}};
  const size_t total = header.size() + bytes.size();
  ssize_t n = ::pwritev(tail_.get(), parts.data(), 2, static_cast<off_t>(tail_size_));
  if (n == static_cast<ssize_t>(total)) {
    tail_size_ += total;
    return true;
  }
  if (lost_ == 0) log::Warn("command log {}: {}", dir_, n < 0 ? std::strerror(errno) : "short write");
  // Half a record must not stay: a reader would take what follows for its rest.
  if (::ftruncate(tail_.get(), static_cast<off_t>(tail_size_)) != 0) tail_.Reset();
  return false;
}

bool CommandLog::Roll() {
  std::error_code ec;
  if (segments_.empty()) std::filesystem::create_directories(dir_, ec);
  Fd next(::open((dir_ + "/" + SegmentName(end_)).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!next) {
    if (lost_ == 0) log::Warn("command log {}: {}", dir_, std::strerror(errno));
    return false;
  }
  tail_ = std::move(next);
  tail_size_ = 0;
  segments_.push_back(end_);
  if (!session_.empty()) core_->logs.Change(session_, static_cast<int64_t>(core_->config.log_segment_bytes));
  Trim();
  return true;
}

void CommandLog::Moved() {
  LetGo();
  Trim();
  if (on_progress_) on_progress_();
}

void CommandLog::Trim() {
  const size_t head =
      tail_only_ ? 0 : std::max<uint64_t>(1, core_->config.log_head_bytes / core_->config.log_segment_bytes);
  const size_t tail = std::max<uint64_t>(2, core_->config.log_tail_bytes / core_->config.log_segment_bytes);
  while (segments_.size() > head + tail) {
    auto victim = segments_.begin() + static_cast<std::ptrdiff_t>(head);
    const uint64_t after = *std::next(victim);
    // Pinned readers get every byte. The agent's window bounds how much that can keep.
    for (const uint64_t* position : pins_) {
      if (*position < after) return;
    }
    ::unlink((dir_ + "/" + SegmentName(*victim)).c_str());
    segments_.erase(victim);
    if (!session_.empty()) core_->logs.Change(session_, -static_cast<int64_t>(core_->config.log_segment_bytes));
  }
}

// One reader's position: which segment, where in its file, how much of the current record is left.
class SegmentReader final : public LogReader {
 public:
  SegmentReader(std::shared_ptr<CommandLog> log, ReadFrom from) : log_(std::move(log)), since_(from.since) {
    // Records have to be read from the beginning of their segment.
    auto after = std::ranges::upper_bound(log_->segments_, since_);
    if (after != log_->segments_.begin()) position_ = *std::prev(after);
    if (from.pinned && !log_->finished_) log_->pins_.insert(&position_);
  }
  SegmentReader(const SegmentReader&) = delete;
  SegmentReader& operator=(const SegmentReader&) = delete;
  ~SegmentReader() override {
    if (log_->pins_.erase(&position_) > 0) log_->Moved();
  }

  bool caught_up() const override { return position_ >= log_->end_ && !log_->finished_; }

  Task<LogChunk> Next() override {
    for (;;) {
      if (position_ < log_->end_) {
        auto chunk = co_await ReadSome();
        if (!chunk) co_return std::unexpected(std::move(chunk).error());
        if (log_->pins_.contains(&position_)) log_->Moved();
        SkipEarly(*chunk);
        if (chunk->gap > 0 || !chunk->bytes.empty()) co_return chunk;
        continue;
      }
      if (log_->finished_) co_return LogChunk{};
      auto woken = co_await log_->changed_.Wait();
      if (!woken) co_return std::unexpected(std::move(woken).error());
    }
  }

 private:
  static constexpr size_t kChunk = 64 << 10;

  // Takes away what lies before the position that the reader was asked for. A chunk is a gap or bytes, not both.
  void SkipEarly(LogChunk& chunk) const {
    const uint64_t begin = position_ - chunk.gap - chunk.bytes.size();
    if (begin >= since_) return;
    if (chunk.gap > 0) {
      chunk.gap -= std::min(chunk.gap, since_ - begin);
    } else {
      chunk.bytes.erase(0, since_ - begin);
    }
  }

  // Jumps to the next segment that exists; the bytes between are missing.
  Result<uint64_t> EnterSegment() {
    // Never the one just left: a damaged record in it would bring us back for ever.
    const uint64_t from = entered_ ? std::max(position_, segment_ + 1) : position_;
    auto next = std::lower_bound(log_->segments_.begin(), log_->segments_.end(), from);
    file_.Reset();
    file_offset_ = 0;
    record_left_ = 0;
    // One that was dropped since is passed over like one that was trimmed before.
    while (next != log_->segments_.end() && !file_) {
      file_ = Fd(::open((log_->dir_ + "/" + SegmentName(*next)).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
      if (!file_ && errno != ENOENT) return FailErrno("open log segment");
      if (!file_) ++next;
    }
    const uint64_t target = next == log_->segments_.end() ? log_->end_ : *next;
    const uint64_t gap = target - position_;
    position_ = target;
    if (!file_) return gap;
    segment_ = target;
    entered_ = true;
    return gap;
  }

  Task<LogChunk> ReadSome() {
    LogChunk chunk;
    if (!file_) {
      SB_CO_TRY(chunk.gap, EnterSegment());
      if (chunk.gap > 0 || !file_) co_return chunk;
    }
    uint64_t want = kChunk;
    // Only the last segment grows; of it, only what was completely written may be looked at.
    if (segment_ == log_->segments_.back())
      want = std::min(want, log_->tail_size_ - std::min(log_->tail_size_, file_offset_));
    std::string data(want, '\0');
    ssize_t n = 0;
    if (want > 0) {
      iovec part{data.data(), data.size()};
      n = ::preadv2(file_.get(), &part, 1, static_cast<off_t>(file_offset_), RWF_NOWAIT);
      if (n < static_cast<ssize_t>(want)) {
        // Not all in the page cache (or the end of a segment): wait for the disk elsewhere.
        auto read = [fd = file_.get(), offset = file_offset_, &data] {
          return ::pread(fd, data.data(), data.size(), static_cast<off_t>(offset));
        };
        n = co_await log_->core_->Files(std::move(read));
      }
    }
    if (n < 0) co_return FailErrno("read log segment");
    data.resize(static_cast<size_t>(n));
    if (!Consume(data, chunk)) file_.Reset();
    co_return chunk;
  }

  // Takes records of one stream (or one hole) from `data`. False: nothing more can come from this segment.
  bool Consume(std::string_view data, LogChunk& chunk) {
    const size_t before = data.size();
    bool more = true;
    while (!data.empty()) {
      if (record_left_ == 0) {
        auto head = ParseHead(data.substr(0, kHeader));
        if (!head || (head->stream == kHoleStream && data.size() < kHeader + 8)) {
          // Cut off by the size of this read, or damaged. Damaged only if it is the first thing we look at.
          more = data.size() != before;
          break;
        }
        if (head->stream == kHoleStream) {
          if (!chunk.bytes.empty()) break;
          chunk.gap = ByteReader(data.substr(kHeader, 8)).U64();
          position_ += chunk.gap;
          data.remove_prefix(kHeader + 8);
          break;
        }
        if (!chunk.bytes.empty() && head->stream != chunk.stream) break;
        stream_ = head->stream;
        record_left_ = head->length;
        data.remove_prefix(kHeader);
        continue;
      }
      chunk.stream = stream_;
      auto piece = data.substr(0, std::min<size_t>(record_left_, data.size()));
      chunk.bytes.append(piece);
      position_ += piece.size();
      record_left_ -= static_cast<uint32_t>(piece.size());
      data.remove_prefix(piece.size());
    }
    file_offset_ += before - data.size();
    return before > 0 && more;
  }

  std::shared_ptr<CommandLog> log_;
  uint64_t since_;
  uint64_t position_ = 0;
  Fd file_;
  bool entered_ = false;
  uint64_t segment_ = 0;
  uint64_t file_offset_ = 0;
  uint8_t stream_ = 1;
  uint32_t record_left_ = 0;
};

Result<std::unique_ptr<LogReader>> CommandLog::NewReader(ReadFrom from) {
  if (from.since > end_)
    return Fail(Code::kBadRequest, fmt::format("`since`: the command has written {} bytes so far", end_));
  return std::make_unique<SegmentReader>(shared_from_this(), from);
}

}  // namespace sandbar::sandbox
