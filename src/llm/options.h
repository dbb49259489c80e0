// What `sandbar agent`, `eval` and `claude-worker` are asked to do, as plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sandbar::llm {

struct Limits {
  int max_steps = 20;            // replies of the model
  int64_t max_tokens = 0;        // in and out, all replies together; 0: none
  int64_t timeout_ms = 600'000;  // of the whole run
};

struct RunOptions {
  std::string prompt;
  std::string model;  // see MakeModel
  Limits limits;
  std::optional<std::string> sandbox;  // one that exists and stays
  std::optional<std::string> from;     // a snapshot
  std::optional<std::string> image, runtime;
  std::optional<std::string> engine;  // what its machine has to be made by
  std::optional<int> min_class;       // or how well isolated at least
  std::string net = "deny";           // see ParseNet
  std::optional<std::string> upload;  // a directory whose files go into the working directory
  std::vector<std::string> download;  // patterns of files to fetch afterwards
  std::string to = ".";               // where to
  std::string record, html;           // files; empty: none
  bool quiet = false;
  bool json = false;
};

struct EvalOptions {
  std::string path;           // a directory of cases, or one case
  std::string model;          // for every case; empty: each case's own
  std::optional<int> trials;  // for every case
  int max_concurrency = 4;
  std::optional<std::string> engine;  // of every sandbox
  std::optional<int> min_class;
  std::vector<std::string> tags;               // any of them; empty: all cases
  std::string junit, record, replay, compare;  // files and directories; empty: none
  bool strict = false;
  bool list = false;
  bool self_test = false;
};

struct ClaudeWorkerOptions {
  std::string environment;  // its id
  std::optional<std::string> image, runtime, from;
  std::string net = "deny";        // see ParseNet
  int64_t timeout_ms = 3'600'000;  // of a sandbox
  int64_t max_idle_ms = 60'000;    // of a session, after a turn
  bool once = false;               // end when there is no work
};

}  // namespace sandbar::llm
