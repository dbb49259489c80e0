// OpenSSL's objects as values with an owner: Owned<X509, X509_free> cert(X509_new());
#pragma once

#include <memory>

namespace sandbar::http {

template <auto kFree>
struct Freer {
  template <class T>
  void operator()(T* p) const {
    kFree(p);
  }
};
template <class T, auto kFree>
using Owned = std::unique_ptr<T, Freer<kFree>>;

}  // namespace sandbar::http
