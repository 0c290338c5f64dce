// OpenSSL's context of a server (tls_context.h).
#include "server/http/tls_context.h"

#include <fmt/format.h>
#include <openssl/err.h>

#include <string_view>

namespace kipp::http {
namespace {

tl::unexpected<Error> tls_error(std::string_view what) {
  const unsigned long code = ::ERR_peek_last_error();
  const char* reason = ::ERR_reason_error_string(code);
  ::ERR_clear_error();
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("{}: {}", what, reason != nullptr ? reason : "unreadable"));
}

// OpenSSL would ask for a passphrase at the terminal.
int no_passphrase(char* /*buffer*/, int /*size*/, int /*is_write*/, void* /*data*/) {
  return 0;
}

int choose_http_1(SSL* /*ssl*/, const unsigned char** out, unsigned char* out_bytes, const unsigned char* in,
                  unsigned in_bytes, void* /*data*/) {
  static constexpr unsigned char kProtocols[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  const int found = ::SSL_select_next_proto(&chosen, out_bytes, kProtocols, sizeof kProtocols - 1, in, in_bytes);
  *out = chosen;
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

}  // namespace

Result<TlsContext> make_tls_context(const std::string& certificate, const std::string& key) {
  ::ERR_clear_error();
  TlsContext context(::SSL_CTX_new(::TLS_server_method()), &::SSL_CTX_free);
  if (!context || ::SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1) {
    return tls_error("TLS");
  }
  ::SSL_CTX_set_default_passwd_cb(context.get(), &no_passphrase);
  ::SSL_CTX_set_alpn_select_cb(context.get(), &choose_http_1, nullptr);
  ::SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);
  if (::SSL_CTX_use_certificate_chain_file(context.get(), certificate.c_str()) != 1) {
    return tls_error(fmt::format("TLS certificate {}", certificate));
  }
  if (::SSL_CTX_use_PrivateKey_file(context.get(), key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return tls_error(fmt::format("TLS key {}", key));
  }
  if (::SSL_CTX_check_private_key(context.get()) != 1) {
    return tls_error(fmt::format("TLS key {} of certificate {}", key, certificate));
  }
  return context;
}

}  // namespace kipp::http
