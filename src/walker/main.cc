#include <unistd.h>

#include "walker/program.h"

int main(int argc, char** argv) {
  // Straight out: what runs at the end of a process has no system calls left to run with.
  ::_exit(sandbar::walker::RunWalker({argv + 1, argv + argc}));
}
