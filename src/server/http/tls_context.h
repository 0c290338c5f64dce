// Certificate and key for TLS.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "kipp/error.h"

namespace kipp::http {

using TlsContext = std::unique_ptr<SSL_CTX, decltype(&::SSL_CTX_free)>;

// TLS 1.2 and later, from PEM files. Errors name the file and OpenSSL's reason.
Result<TlsContext> make_tls_context(const std::string& certificate, const std::string& key);

}  // namespace kipp::http
