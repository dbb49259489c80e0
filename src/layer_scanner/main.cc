#include <unistd.h>

#include "layer_scanner/program.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
// What the sanitizer keeps of freed memory would be more than the spawner lets this program have.
extern "C" const char* __asan_default_options() {  // NOLINT(bugprone-reserved-identifier)
  return "quarantine_size_mb=16";
}
#endif
#endif

int main(int argc, char** argv) {
  // Straight out: what runs at the end of a process has no system calls left to run with.
  ::_exit(sandbar::layer_scanner::RunScanner({argv + 1, argv + argc}));
}
