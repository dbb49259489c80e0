#include <string>
#include <vector>

#include "spawner/program.h"

int main(int argc, char** argv) {
  return sandbar::spawner::RunSpawner(std::vector<std::string>(argv + 1, argv + argc));
}
