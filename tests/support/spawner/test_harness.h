// For tests: a real spawner in a temporary directory with a one-layer image (busybox), and a blocking client.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "spawner/protocol.h"

namespace sandbar::spawner {

struct Answer {
  Response body;
  std::vector<Fd> fds;
};

class TestClient {
 public:
  explicit TestClient(Fd socket) : socket_(std::move(socket)) {}
  // Waits for this request's answer; events that come first are kept for NextEvent.
  Result<Answer> Call(Request request);
  // Pauses a machine. On a busy host its processes may need longer than the spawner waits; this asks again then.
  Result<> Pause(const std::string& machine);
  void Send(Request request, uint32_t tag);
  Result<ExitedEvent> NextEvent();
  int fd() const { return socket_.get(); }
  void Close() { socket_.Reset(); }

 private:
  Result<TaggedResponse> Next(std::vector<Fd>* fds);
  Fd socket_;
  uint32_t next_tag_ = 1;
  std::deque<ExitedEvent> events_;
};

// Shell words, for the store's directory, that make a snapshot writable. The spawner makes a new snapshot read-only in
// the background, so the words wait for that first.
std::string MakeWritable(const std::string& snapshot);

class TestHost {
 public:
  static Result<std::unique_ptr<TestHost>> Create();
  ~TestHost();
  TestHost(const TestHost&) = delete;
  TestHost& operator=(const TestHost&) = delete;

  // Starts a detached spawner and returns its exit status as its starter sees it.
  int StartSpawner(const std::vector<std::string>& extra = {});
  Result<std::unique_ptr<TestClient>> Connect();
  pid_t spawner_pid();
  void KillSpawner();  // SIGKILL, and waits for the end
  void StopSpawner();  // SIGTERM, and waits for the end
  bool SpawnerAlive();

  const std::string& dir() const { return dir_; }
  std::string data() const { return dir_ + "/data"; }
  std::string images() const { return dir_ + "/images"; }

  static BootReq SmallMachine(const std::string& id);
  static ConfigureReq Image(const std::string& id);
  // Boot and Configure.
  Result<Answer> Start(TestClient& client, const std::string& id);
  // Runs a script in the machine through the test agent: its output, with the last line "exit:<status>".
  Result<std::string> Run(const std::string& id, const std::string& script);
  // Lets the machine connect to an address outside and answers through its listener.
  std::string Fetch(const std::string& id, int listener);
  pid_t MachinePid(TestClient& client, const std::string& id);
  // The machine's writable directory, as the spawner sees it.
  std::string UpperOf(const std::string& id);
  // Mounts, control groups and loop devices of this spawner that the host still has.
  std::vector<std::string> Leftovers();
  // Replaces the agent by another C program.
  void UseAgent(const std::string& source);
  // The next spawner has gVisor, and machines are its own.
  void UseGvisor();
  // Replaces the image's directory by an erofs file.
  Result<> UseErofsImage();

 private:
  explicit TestHost(std::string dir) : dir_(std::move(dir)) {}
  Result<> MakeImage();
  Result<> MakeAgent(const std::string& source);
  void AwaitEnd(pid_t pid);
  bool gvisor() const { return runsc_ != "none"; }
  std::string dir_, runsc_ = "none";
};

// Polls; gives up after a generous number of tries.
template <class F>
bool Eventually(F f) {
  for (int i = 0; i < 3000; ++i) {
    if (f()) return true;
    ::usleep(10'000);
  }
  return false;
}

}  // namespace sandbar::spawner
