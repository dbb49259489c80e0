#include "http/tls_names.h"

#include <openssl/ssl.h>

#include <memory>

#include "wire/text.h"

namespace sandbar::http {

namespace {

struct OtherName {
  std::string suffix;
  TlsContext context;
};

void FreeOther(void* /*parent*/, void* data, CRYPTO_EX_DATA* /*all*/, int /*index*/, long /*argl*/, void* /*argp*/) {
  std::unique_ptr<OtherName> owned(static_cast<OtherName*>(data));
}

int ChooseContext(SSL* connection, int* /*alert*/, void* data) {
  const auto* other = static_cast<const OtherName*>(data);
  const char* asked = SSL_get_servername(connection, TLSEXT_NAMETYPE_host_name);
  if (asked == nullptr) return SSL_TLSEXT_ERR_OK;
  const std::string_view name(asked);
  const std::string& suffix = other->suffix;
  const bool under =
      name.size() > suffix.size() && wire::EqualsIgnoreCase(name.substr(name.size() - suffix.size()), suffix);
  if (under) SSL_set_SSL_CTX(connection, other->context->native_handle());
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

Result<> AddTlsName(const TlsContext& base, const std::string& suffix, TlsContext other) {
  SSL_CTX* handle = base->native_handle();
  // The context frees it together with itself: connections may outlive whoever called us.
  const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, FreeOther);
  auto owned = std::make_unique<OtherName>(suffix, std::move(other));
  if (index < 0 || SSL_CTX_set_ex_data(handle, index, owned.get()) != 1)
    return Fail(Code::kInternal, "TLS: cannot add a second certificate");
  SSL_CTX_set_tlsext_servername_callback(handle, ChooseContext);
  SSL_CTX_set_tlsext_servername_arg(handle, owned.release());
  return {};
}

}  // namespace sandbar::http
