// Calls on single files: list, stat, write, attributes, rename, remove, links. For the worker process of a file stream
// (guest/file_worker.h), which has become the user; paths are relative to the current directory. Blocking.
//
//   SB_TRYV(ListEntries(request, out));     // sends the entries as Data
//   SB_TRYV(WriteBytes(pipe, request));
#pragma once

#include <string>

#include "base/result.h"
#include "guest/file_worker.h"
#include "protocol/guest_frames.h"

namespace sandbar::guest {

Result<> ListEntries(const protocol::ListDir& request, FrameOut& out);
Result<> StatEntry(const protocol::StatFile& request, FrameOut& out);
// From `in` until its end. Whoever gives up before the end of the bytes kills the process: nothing but the end of `in`
// makes a whole file visible.
Result<> WriteBytes(int in, const protocol::WriteFile& request);
Result<> Apply(const protocol::SetAttributes& request);
Result<> Apply(const protocol::RenameFile& request);
Result<> Apply(const protocol::RemoveFile& request);
Result<> Apply(const protocol::MakeLink& request);

}  // namespace sandbar::guest
