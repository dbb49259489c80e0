// Shared by the files that describe the command line to CLI11; nothing else includes it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/options.h"

namespace sandbar::cli {

// Everything that CLI11 fills in; the chosen subcommand's part becomes the result.
struct Raw {
  Options options;
  ServeCommand serve, up, restart;
  RunCommand run;
  CodeCommand code;
  std::vector<std::string> code_words;
  PsCommand ps;
  ExecCommand exec;
  ShCommand sh;
  AttachCommand attach;
  LogsCommand logs;
  CpCommand cp;
  StopCommand stop;
  RmCommand rm;
  InspectCommand inspect;
  SnapshotCommand snapshot;
  ForkCommand fork;
  PauseCommand pause;
  ResumeCommand resume;
  NetCommand net;
  DiffCommand diff;
  PromoteCommand promote;
  RaceCommand race;
  ExportCommand export_;
  ImportCommand import_;
  ForwardCommand forward;
  McpCommand mcp;
  ImageCommand image;
  KernelCommand kernel;
  DoctorCommand doctor;
  EnvCommand env;
  KeyCommand key;
  LoginCommand login;
  bool env_no_aliases = false;
  AgentCommand agent;
  IsolationOptions agent_isolation;
  ClaudeWorkerCommand claude_worker;
  EvalCommand eval;
  IsolationOptions eval_isolation;
  std::string agent_timeout, worker_timeout, worker_idle, run_timeout, sh_timeout, exec_timeout, code_timeout,
      import_timeout, forward_port;
};

// For CLI11's ->check(): what is wrong with the text, else empty.
std::string CheckDuration(const std::string& text);

// --isolation and --min-class.
void AddIsolation(CLI::App* sub, IsolationOptions* isolation);
void AddNesting(CLI::App* sub, IsolationOptions* isolation);

// parse_commands.cc: run, exec, sh, attach.
void AddCommands(CLI::App* app, Raw* raw);
// What was said about those commands, completed. What is wrong, else empty.
std::string ArrangeCommands(const CLI::App* sub, Raw* raw);
// `sh` is one of the two others.
Command ChooseSh(const ShCommand& sh);

// parse_keys.cc
void AddKey(CLI::App* app, Raw* raw);
void AddLogin(CLI::App* app, Raw* raw);

// parse_llm.cc
void AddMcp(CLI::App* app, Raw* raw);
void AddCode(CLI::App* app, Raw* raw);
void AddAgent(CLI::App* app, Raw* raw);
void AddClaudeWorker(CLI::App* app, Raw* raw);
void AddEval(CLI::App* app, Raw* raw);
// One word is the file, two are the sandbox and the file; with -c the word is the sandbox. What is wrong, else empty.
std::string ArrangeCode(CodeCommand* code, const std::vector<std::string>& words);

}  // namespace sandbar::cli
