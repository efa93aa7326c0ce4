#pragma once
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

// Conditions that tests of threads wait for, instead of a time.
namespace canopy::test {

/// Holds whoever passes until it is opened. Any thread.
class Gate {
 public:
  void open() {
    open_.store(true);
    open_.notify_all();
  }
  void pass() {
    reached_.store(true);
    reached_.notify_all();
    open_.wait(false);
  }
  bool reached() const { return reached_.load(); }
  void wait_until_reached() const { reached_.wait(false); }

 private:
  std::atomic<bool> open_{false}, reached_{false};
};

/// Returns true if a thread of this process waits (state S of /proc/PID/task/TID/stat).
inline bool asleep(int tid) {
  std::ifstream file("/proc/self/task/" + std::to_string(tid) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(") ");  // the name may hold anything
  return name_end != std::string::npos && line.at(name_end + 2) == 'S';
}

/// Returns once the thread waits: for whatever it may wait for by then, the caller knows.
inline void wait_until_asleep(int tid) {
  while (!asleep(tid)) std::this_thread::yield();
}

/// The id of the thread of this process with a name; 0 if there is none.
inline int thread_named(const std::string& wanted) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    if (std::getline(file, name) && name == wanted)
      return std::stoi(task.path().filename().string());
  }
  return 0;
}

}  // namespace canopy::test
