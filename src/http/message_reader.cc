#include "http/message_reader.h"

#include <algorithm>
#include <cstring>

namespace sandbar::http {

namespace {

constexpr size_t kPiece = 64 << 10;  // read at once when the body needs no parsing

}  // namespace

char* MessageReader::Room() {
  SB_CHECK(!reading_ahead_);
  if (buffer_.empty()) buffer_.resize(buffer_bytes_);
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (begin_ != 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  SB_CHECK(end_ < buffer_.size());
  return buffer_.data() + end_;
}

void MessageReader::Took(size_t got) {
  end_ += got;
  if (got == 0) ended_ = true;
  if (progress_ != nullptr) progress_->OnRead();
}

size_t MessageReader::TakeBuffered(char* data, size_t n) {
  const size_t taken = buffered().copy(data, n);
  begin_ += taken;
  return taken;
}

Task<> MessageReader::ReadAhead() {
  char* room = Room();
  reading_ahead_ = true;
  auto got = co_await stream_->ReadSome(room, this->room());
  reading_ahead_ = false;
  if (!got) co_return std::unexpected(std::move(got).error());
  Took(*got);
  co_return Result<>{};
}

Task<bool> MessageReader::ReadHead() {
  bool begun = false;
  while (!parser_.head_done()) {
    if (begin_ == end_) {
      char* room = Room();
      SB_CO_TRY(size_t got, co_await stream_->ReadSome(room, this->room()));
      Took(got);
      if (got == 0) co_return false;
    }
    if (!begun && progress_ != nullptr) progress_->OnHeadBegin();
    begun = true;
    SB_CO_TRY(size_t used, parser_.Feed(buffered(), nullptr));
    begin_ += used;
  }
  if (progress_ != nullptr) progress_->OnHeadEnd();
  co_return true;
}

Result<> MessageReader::ParseBody(std::string* piece) {
  SB_TRY(size_t used, parser_.Feed(buffered(), piece));
  begin_ += used;
  return {};
}

Result<std::string> MessageReader::BufferedBody() {
  std::string piece;
  SB_TRYV(ParseBody(&piece));
  return piece;
}

Task<std::string> MessageReader::ReadBody() {
  std::string piece;
  while (!parser_.done() && piece.empty()) {
    if (begin_ != end_) {
      SB_CO_TRYV(ParseBody(&piece));
      continue;
    }
    size_t got = 0;
    if (parser_.raw_body() >= buffer_bytes_) {
      // Straight into the piece: the kernel's copy of a large body is the only one.
      piece.resize(static_cast<size_t>(std::min<uint64_t>(parser_.raw_body(), kPiece)));
      SB_CO_TRY(got, co_await stream_->ReadSome(piece.data(), piece.size()));
      piece.resize(got);
      parser_.TakeRaw(got);
      if (got == 0) ended_ = true;
      if (progress_ != nullptr) progress_->OnRead();
    } else {
      char* room = Room();
      SB_CO_TRY(got, co_await stream_->ReadSome(room, this->room()));
      Took(got);
    }
    if (got == 0) SB_CO_TRYV(parser_.Eof());
  }
  co_return piece;
}

Task<bool> MessageReader::Drain(uint64_t max_bytes) {
  uint64_t drained = 0;
  std::string sink;
  while (!parser_.done()) {
    if (begin_ == end_) {
      char* room = Room();
      SB_CO_TRY(size_t got, co_await stream_->ReadSome(room, this->room()));
      Took(got);
      if (got == 0) co_return false;
    }
    const size_t before = begin_;
    if (!ParseBody(&sink)) co_return false;
    sink.clear();
    drained += begin_ - before;
    if (drained > max_bytes) co_return false;
  }
  co_return true;
}

}  // namespace sandbar::http
