// What k trials of a case say. Pure functions.
#pragma once

namespace sandbar::evals {

// Of n trials c passed. The chance that at least one (PassAtK), or every one (PassHatK), of k trials drawn from them
// passed. 0 when n < k or n is 0.
double PassAtK(int n, int c, int k);
double PassHatK(int n, int c, int k);

}  // namespace sandbar::evals
