// How long a machine takes: create, /bin/true in it, gone; next to other ways of getting an isolated process, in one
// run and interleaved, so that what else the host does hits all of them alike. Medians and ratios, no promises.
//
//   create --api HOST:PORT --token TOKEN --pid DAEMON_PID --cold IMAGE --pooled RUNTIME --rounds N
//          [-- NAME PROGRAM ARGS…]…          every further contender: a command line that is a whole life of /bin/true
//
// Only the C++ library; bench/run.sh compiles and calls it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
double MsSince(Clock::time_point t) {
  return std::chrono::duration<double, std::milli>(Clock::now() - t).count();
}

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "bench: %s\n", what.c_str());
  std::exit(1);
}

struct Options {
  std::string host = "127.0.0.1", token, cold, pooled;
  int port = 0, rounds = 50;
  int pid = 0;
  std::vector<std::vector<std::string>> peers;  // name, program, args…
};

int Connect(const Options& o) {
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<uint16_t>(o.port));
  ::inet_pton(AF_INET, o.host.c_str(), &a.sin_addr);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof(a)) != 0) Die("cannot connect to the server");
  int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

// Where the response at the start of `in` ends; 0: more is needed. Bodies are JSON or ASCII NDJSON: a CR LF in them
// can only be chunked framing.
size_t ResponseEnd(std::string_view in) {
  size_t head = in.find("\r\n\r\n");
  if (head == std::string_view::npos) return 0;
  head += 4;
  std::string lower(in.substr(0, head));
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower.contains("transfer-encoding: chunked")) {
    if (in.substr(head).starts_with("0\r\n\r\n")) return head + 5;
    size_t end = in.find("\r\n0\r\n\r\n", head);
    return end == std::string_view::npos ? 0 : end + 7;
  }
  size_t at = lower.find("content-length:");
  size_t length = at == std::string::npos ? 0 : std::strtoul(lower.c_str() + at + 15, nullptr, 10);
  return in.size() >= head + length ? head + length : 0;
}

class Api {
 public:
  explicit Api(const Options& o) : o_(o), fd_(Connect(o)) {}
  ~Api() { ::close(fd_); }
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  std::string Bytes(const std::string& method, const std::string& path, const std::string& body = "") const {
    return method + " " + path + " HTTP/1.1\r\nHost: " + o_.host + ":" + std::to_string(o_.port) +
           "\r\nAuthorization: Bearer " + o_.token +
           "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  std::string Call(const std::string& method, const std::string& path, const std::string& body = "") {
    std::string out = Bytes(method, path, body);
    if (::send(fd_, out.data(), out.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(out.size())) Die("send failed");
    std::string in;
    char buffer[65536];
    while (ResponseEnd(in) == 0) {
      ssize_t n = ::recv(fd_, buffer, sizeof(buffer), 0);
      if (n <= 0) Die(method + " " + path + ": the server closed the connection");
      in.append(buffer, static_cast<size_t>(n));
    }
    if (!in.starts_with("HTTP/1.1 2")) Die(method + " " + path + ": " + in.substr(0, 600));
    return in;
  }

 private:
  const Options& o_;
  int fd_;
};

// The string value after `"key":"`; the fields we look for are plain.
std::string Field(const std::string& json, const std::string& key, size_t from = 0) {
  std::string mark = "\"" + key + "\":\"";
  size_t at = json.find(mark, from);
  if (at == std::string::npos) Die("no " + key + " in " + json.substr(0, 400));
  at += mark.size();
  return json.substr(at, json.find('"', at) - at);
}

struct Machine {
  std::string name, session;
};
constexpr const char* kTrue = R"({"command":"/bin/true","args":[],"env":{},"sudo":false,"wait":true,"logs":true})";

Machine Create(Api& api, const std::string& what) {
  bool image = what.contains('/');
  std::string body = R"({"projectId":"prj_bench","ports":[],"networkPolicy":{"mode":"deny-all"},")" +
                     std::string(image ? "image" : "runtime") + "\":\"" + what + "\"}";
  std::string answer = api.Call("POST", image ? "/v3/sandboxes" : "/v2/sandboxes", body);
  size_t session = answer.find("\"session\":{");
  return {Field(answer, "name", answer.find("\"sandbox\":{")), Field(answer, "id", session)};
}
void RunTrue(Api& api, const Machine& m) {
  std::string answer = api.Call("POST", "/v2/sandboxes/sessions/" + m.session + "/cmd", kTrue);
  if (!answer.contains("\"exitCode\":0")) Die("/bin/true failed: " + answer);
}
void Delete(Api& api, const Machine& m) {
  api.Call("DELETE", "/v2/sandboxes/" + m.name + "?projectId=prj_bench");
}

void Spawn(const std::vector<std::string>& argv) {
  std::vector<char*> args;
  for (const auto& a : argv) args.push_back(const_cast<char*>(a.c_str()));
  args.push_back(nullptr);
  pid_t pid = 0;
  if (::posix_spawnp(&pid, args[0], nullptr, nullptr, args.data(), environ) != 0) Die("cannot start " + argv[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (status != 0) Die(argv[0] + " failed");
}

class Series {
 public:
  void Add(double ms) { values_.push_back(ms); }
  double Quantile(double q) const {
    if (values_.empty()) return 0;
    std::vector<double> v = values_;
    std::ranges::sort(v);
    return v[std::min(v.size() - 1, static_cast<size_t>(q * static_cast<double>(v.size())))];
  }
  double median() const { return Quantile(0.5); }

 private:
  std::vector<double> values_;
};

using Table = std::map<std::string, Series>;

// One whole life, and its parts.
void Life(Api& api, const std::string& what, const std::string& label, Table& t) {
  auto start = Clock::now();
  Machine m = Create(api, what);
  double created = MsSince(start);
  RunTrue(api, m);
  double ran = MsSince(start);
  Delete(api, m);
  double gone = MsSince(start);
  t[label].Add(gone);
  t[label + ": create"].Add(created);
  t[label + ": /bin/true"].Add(ran - created);
  t[label + ": teardown"].Add(gone - ran);
}

Table Measure(const Options& o) {
  Table t;
  Api api(o);
  Machine live = Create(api, o.pooled);
  for (int i = -2; i < o.rounds; ++i) {  // the first two warm caches and do not count
    Table warm_up;
    Table& to = i < 0 ? warm_up : t;
    auto timed = [&](const std::string& name, auto f) {
      auto start = Clock::now();
      f();
      to[name].Add(MsSince(start));
    };
    timed("fork+exec on the host", [] { Spawn({"/bin/true"}); });
    for (const auto& peer : o.peers) timed(peer[0], [&] { Spawn({peer.begin() + 1, peer.end()}); });
    Life(api, o.cold, "sandbar, cold", to);
    Life(api, o.pooled, "sandbar, pooled", to);
    timed("exec in a live sandbox, over HTTP", [&] { RunTrue(api, live); });
    ::usleep(20'000);  // the pool refills; not part of anything
  }
  Delete(api, live);
  return t;
}

double CpuSeconds(int pid) {
  std::ifstream f("/proc/" + std::to_string(pid) + "/stat");
  std::string line((std::istreambuf_iterator<char>(f)), {});
  std::istringstream in(line.substr(line.rfind(')') + 2));
  std::string skip;
  for (int i = 0; i < 11; ++i) in >> skip;
  double user = 0, sys = 0;
  in >> user >> sys;
  return (user + sys) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

struct Rate {
  double per_second = 0, per_cpu_second = 0;
};

// Small authenticated requests on 32 kept connections, one outstanding on each.
Rate Requests(const Options& o, const std::string& path, double seconds) {
  constexpr int kConnections = 32;
  Api api(o);
  std::string request = api.Bytes("GET", path);
  int poll = ::epoll_create1(EPOLL_CLOEXEC);
  std::vector<std::string> in(kConnections);
  std::vector<int> fds;
  for (int i = 0; i < kConnections; ++i) {
    fds.push_back(Connect(o));
    epoll_event e{.events = EPOLLIN, .data = {.u32 = static_cast<uint32_t>(i)}};
    ::epoll_ctl(poll, EPOLL_CTL_ADD, fds.back(), &e);
    if (::send(fds.back(), request.data(), request.size(), MSG_NOSIGNAL) < 0) Die("send failed");
  }
  double cpu = CpuSeconds(o.pid);
  auto start = Clock::now();
  uint64_t done = 0;
  char buffer[65536];
  while (MsSince(start) < seconds * 1000) {
    epoll_event events[kConnections];
    int n = ::epoll_wait(poll, events, kConnections, 1000);
    for (int i = 0; i < n; ++i) {
      uint32_t c = events[i].data.u32;
      ssize_t r = ::recv(fds[c], buffer, sizeof(buffer), 0);
      if (r <= 0) Die("the server closed a connection");
      in[c].append(buffer, static_cast<size_t>(r));
      if (ResponseEnd(in[c]) == 0) continue;
      if (!in[c].starts_with("HTTP/1.1 2")) Die(in[c].substr(0, 300));
      in[c].clear();
      ++done;
      if (::send(fds[c], request.data(), request.size(), MSG_NOSIGNAL) < 0) Die("send failed");
    }
  }
  double elapsed = MsSince(start) / 1000;
  cpu = CpuSeconds(o.pid) - cpu;
  for (int fd : fds) ::close(fd);
  ::close(poll);
  return {static_cast<double>(done) / elapsed, cpu > 0 ? static_cast<double>(done) / cpu : 0};
}

void Print(const Options& o, Table& t) {
  std::printf("%-38s %10s %10s %10s\n", "create, /bin/true, gone", "median ms", "p90", "p99");
  for (auto& [name, s] : t)
    std::printf("%-38s %10.2f %10.2f %10.2f\n", name.c_str(), s.median(), s.Quantile(0.9), s.Quantile(0.99));
  struct Budget {
    std::string what;
    double ratio, most;
  };
  auto ratio = [&](const std::string& a, const std::string& b) {
    return t.contains(a) && t.contains(b) ? t[a].median() / t[b].median() : 0;
  };
  std::vector<Budget> budgets = {
      {"cold life / bubblewrap", ratio("sandbar, cold", "bubblewrap"), 1.5},
      {"cold life / crun", ratio("sandbar, cold", "crun"), 0.5},
      {"cold life / runc", ratio("sandbar, cold", "runc"), 0.2},
      {"pooled create / bubblewrap", ratio("sandbar, pooled: create", "bubblewrap"), 0.3},
      {"exec over HTTP / fork+exec", ratio("exec in a live sandbox, over HTTP", "fork+exec on the host"), 3},
  };
  std::printf("\n%-38s %10s %10s\n", "ratio of medians", "measured", "budget");
  for (const auto& b : budgets)
    if (b.ratio > 0)
      std::printf("%-38s %10.2f %10s  %s\n", b.what.c_str(), b.ratio,
                  ("<= " + std::to_string(b.most).substr(0, 4)).c_str(), b.ratio <= b.most ? "ok" : "OVER");
  Rate health = Requests(o, "/health", 2);
  Rate list = Requests(o, "/v2/sandboxes?project=prj_bench&limit=1", 2);
  std::printf("\n%-38s %10s %22s\n", "API, 32 connections", "per s", "per cpu second");
  std::printf("%-38s %10.0f %22.0f\n", "GET /health", health.per_second, health.per_cpu_second);
  std::printf("%-38s %10.0f %22.0f\n", "GET /v2/sandboxes?limit=1", list.per_second, list.per_cpu_second);
}

Options Parse(int argc, char** argv) {
  Options o;
  int i = 1;
  for (; i + 1 < argc && std::strcmp(argv[i], "--") != 0; i += 2) {
    std::string key = argv[i], value = argv[i + 1];
    if (key == "--api") {
      o.host = value.substr(0, value.rfind(':'));
      o.port = std::atoi(value.substr(value.rfind(':') + 1).c_str());
    } else if (key == "--token") {
      o.token = value;
    } else if (key == "--pid") {
      o.pid = std::atoi(value.c_str());
    } else if (key == "--cold") {
      o.cold = value;
    } else if (key == "--pooled") {
      o.pooled = value;
    } else if (key == "--rounds") {
      o.rounds = std::atoi(value.c_str());
    } else {
      Die("unknown option " + key);
    }
  }
  for (; i < argc; ++i) {
    if (std::strcmp(argv[i], "--") == 0) {
      o.peers.emplace_back();
    } else {
      o.peers.back().emplace_back(argv[i]);
    }
  }
  if (o.port == 0 || o.token.empty() || o.cold.empty() || o.pooled.empty()) Die("see the head of bench/create.cc");
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  Options o = Parse(argc, argv);
  Table t = Measure(o);
  Print(o, t);
  return 0;
}
