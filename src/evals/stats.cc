#include "evals/stats.h"

namespace sandbar::evals {
namespace {

// C(a, k) / C(n, k) as a product: no large numbers.
double Share(int a, int n, int k) {
  double share = 1;
  for (int i = 0; i < k; ++i) share *= a - i <= 0 ? 0.0 : static_cast<double>(a - i) / (n - i);
  return share;
}

}  // namespace

double PassAtK(int n, int c, int k) {
  return n == 0 || k < 1 || k > n ? 0 : 1 - Share(n - c, n, k);
}

double PassHatK(int n, int c, int k) {
  return n == 0 || k < 1 || k > n ? 0 : Share(c, n, k);
}

}  // namespace sandbar::evals
