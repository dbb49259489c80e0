// The daemon-facing half of Commands: sending, acknowledging, the memory budget.
#include <malloc.h>

#include <algorithm>

#include "guest/commands.h"

namespace sandbar::guest {
namespace {

constexpr size_t kPiece = 64 << 10;

}  // namespace

void Commands::Ack(const protocol::Ack& ack) {
  auto it = commands_.find(ack.id);
  if (it == commands_.end()) return;
  Command& c = *it->second;
  bool tight = held_ >= kSpoolBudget;
  size_t before = c.spool.cost();
  if (!c.spool.Ack(ack.offset)) return outlet_->Violation("acknowledged output that was never sent");
  Account(before, c);
  UpdateReading(c);
  if (tight && held_ < kSpoolBudget) UpdateAll();
  Pump();
}

void Commands::ExitAck(const protocol::ExitAck& ack) {
  auto it = commands_.find(ack.id);
  if (it == commands_.end()) return;
  if (!it->second->exit_sent) return outlet_->Violation("acknowledged an exit that was never sent");
  Erase(ack.id);
}

void Commands::Erase(const std::string& id) {
  auto it = commands_.find(id);
  bool tight = held_ >= kSpoolBudget;
  held_ -= it->second->spool.cost();
  commands_.erase(it);
  if (tight && held_ < kSpoolBudget) UpdateAll();
  if (held_ == 0 && peak_ > (1 << 20)) {
    // Back to the idle footprint: the allocator would keep the pages otherwise.
    ::malloc_trim(0);
    peak_ = 0;
  }
}

void Commands::Account(size_t before, const Command& c) {
  held_ = held_ - before + c.spool.cost();
  peak_ = std::max(peak_, held_);
}

// Only while no daemon is connected: every spool shrinks to an equal share.
void Commands::TrimForBudget() {
  size_t active = 0;
  for (auto& [id, c] : commands_) active += c->spool.cost() > 0 ? 1 : 0;
  for (auto& [id, c] : commands_) {
    size_t before = c->spool.cost();
    c->spool.Trim(kSpoolBudget / active);
    Account(before, *c);
  }
}

void Commands::OnConnected() {
  for (auto& [id, c] : commands_) {
    c->spool.Rewind();
    c->exit_sent = false;
    if (!c->standard_input) continue;
    // HelloAck has told it.
    c->taken_said = c->standard_input->taken();
    c->closed_said = c->standard_input->closed();
  }
  UpdateAll();
}

void Commands::OnDisconnected() {
  UpdateAll();
}

bool Commands::PumpOne(Command& c) {
  if (!c.running) return false;
  Spool::Piece piece;
  uint64_t limit = c.spool.acked() + protocol::kOutputWindow;
  if (c.spool.sent() < limit && c.spool.Peek(std::min<uint64_t>(kPiece, limit - c.spool.sent()), piece)) {
    if (piece.gap > 0) {
      outlet_->Send(protocol::Gap{c.request.id, piece.offset, piece.gap});
      c.spool.Advance(piece.gap);
    } else {
      outlet_->Send(protocol::Output{c.request.id, piece.offset, piece.stream, std::string(piece.bytes)});
      c.spool.Advance(piece.bytes.size());
    }
    return true;
  }
  if (!c.finished || c.exit_sent || c.spool.sent() < c.spool.end()) return false;
  c.exit_sent = true;
  outlet_->Send(protocol::Exit{c.request.id, c.code, c.timed_out, c.duration_ms, c.spool.end(), c.out_of_memory});
  return true;
}

void Commands::Pump() {
  for (bool any = true; any && outlet_->live() && !outlet_->full();) {
    any = false;
    auto it = commands_.upper_bound(cursor_);
    for (size_t i = 0; i < commands_.size() && outlet_->live() && !outlet_->full(); ++i, ++it) {
      if (it == commands_.end()) it = commands_.begin();
      cursor_ = it->first;
      any = PumpOne(*it->second) || any;
    }
  }
}

std::vector<protocol::CommandState> Commands::States() const {
  std::vector<protocol::CommandState> out;
  for (const auto& [id, c] : commands_) out.push_back(protocol::CommandState{id, c->spool.end(), c->finished});
  return out;
}

void Commands::Rename(const std::vector<protocol::Renamed>& ids) {
  for (const auto& [from, to] : ids) {
    if (!commands_.contains(from) || commands_.contains(to)) continue;
    auto node = commands_.extract(from);
    node.key() = to;
    node.mapped()->request.id = to;
    commands_.insert(std::move(node));
  }
}

bool Commands::AllReported() const {
  return std::all_of(commands_.begin(), commands_.end(), [](const auto& it) { return it.second->exit_sent; });
}

}  // namespace sandbar::guest
