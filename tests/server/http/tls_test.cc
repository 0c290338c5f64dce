// TLS with a certificate that the test makes: requests, streams with a proper end, disconnects, and files that do not
// fit.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "server/http/raw_client.h"

namespace kipp::http::testing {
namespace {

template <typename T, void (*kFree)(T*)>
struct Deleter {
  void operator()(T* object) const { kFree(object); }
};
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY, &::EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Deleter<X509, &::X509_free>>;
using Context = std::unique_ptr<SSL_CTX, Deleter<SSL_CTX, &::SSL_CTX_free>>;
using Ssl = std::unique_ptr<SSL, Deleter<SSL, &::SSL_free>>;

struct File {
  explicit File(const std::filesystem::path& path) : stream(std::fopen(path.c_str(), "w")) {}
  ~File() { std::fclose(stream); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  FILE* stream;
};

void write_key_and_certificate(const std::filesystem::path& key_path, const std::filesystem::path& certificate_path) {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate(::X509_new());
  ::ASN1_INTEGER_set(::X509_get_serialNumber(certificate.get()), 1);
  ::X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
  ::X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  ::X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* name = ::X509_get_subject_name(certificate.get());
  const auto* text = reinterpret_cast<const unsigned char*>("localhost");
  ::X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, text, -1, -1, 0);
  ::X509_set_issuer_name(certificate.get(), name);
  ::X509_sign(certificate.get(), key.get(), ::EVP_sha256());
  ::PEM_write_PrivateKey(File(key_path).stream, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  ::PEM_write_X509(File(certificate_path).stream, certificate.get());
}

class HttpTls : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("kipp-tls-{}", ::getpid());
    std::filesystem::create_directory(folder_);
    write_key_and_certificate(folder_ / "key", folder_ / "certificate");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Options options() const {
    return {.tls_certificate = (folder_ / "certificate").string(), .tls_key = (folder_ / "key").string()};
  }
  std::string start_error(const Options& options) const {
    auto server = Server::start(options, [](const std::shared_ptr<Exchange>&) {});
    return server ? "started" : server.error().message;
  }

  std::filesystem::path folder_;
};

class TlsClient {
 public:
  TlsClient(RawClient socket, int max_version)
      : socket_(std::move(socket)), context_(::SSL_CTX_new(::TLS_client_method())) {
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_VERSION);
    ::SSL_CTX_set_security_level(context_.get(), 0);
    SSL_CTX_set_max_proto_version(context_.get(), max_version);
    ssl_.reset(::SSL_new(context_.get()));
    ::SSL_set_fd(ssl_.get(), socket_.descriptor());
    const unsigned char protocols[] = "\x02h2\x08http/1.1";
    ::SSL_set_alpn_protos(ssl_.get(), protocols, sizeof protocols - 1);
    is_connected_ = ::SSL_connect(ssl_.get()) == 1;
  }

  bool is_connected() const { return is_connected_; }
  std::string alpn() const {
    const unsigned char* name = nullptr;
    unsigned size = 0;
    ::SSL_get0_alpn_selected(ssl_.get(), &name, &size);
    return {reinterpret_cast<const char*>(name), size};
  }
  void send(const std::string& bytes) { ::SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())); }
  Answer read_answer() {
    for (;;) {
      if (std::optional<Answer> answer = take_answer(buffer_, true, ended_)) {
        return *answer;
      }
      char chunk[4096];
      const int count = ::SSL_read(ssl_.get(), chunk, sizeof chunk);
      if (count <= 0) {
        if (std::exchange(ended_, true)) {
          return {};
        }
        was_told_ = ::SSL_get_error(ssl_.get(), count) == SSL_ERROR_ZERO_RETURN;
      } else {
        buffer_.append(chunk, static_cast<size_t>(count));
      }
    }
  }
  bool was_told_of_the_end() const { return was_told_; }
  void close() { socket_.close(); }

 private:
  RawClient socket_;
  Context context_;
  Ssl ssl_;
  bool is_connected_ = false;
  bool ended_ = false;
  bool was_told_ = false;
  std::string buffer_;
};

TEST_F(HttpTls, RequestsAndStreams) {
  TestServer server(options());
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client(server.connect(), version);
    ASSERT_TRUE(client.is_connected());
    EXPECT_EQ(client.alpn(), "http/1.1");
    const std::string body(300'000, 'x');
    client.send(post("/echo", body));
    EXPECT_EQ(client.read_answer().body, "POST /echo?\n" + body);
    client.send("GET /stream HTTP/1.0\r\n\r\n");
    EXPECT_EQ(client.read_answer().body, "one two three");
    EXPECT_TRUE(client.was_told_of_the_end());
  }
  EXPECT_FALSE(TlsClient(server.connect(), TLS1_1_VERSION).is_connected());
}

TEST_F(HttpTls, ErrorsAndDisconnects) {
  TestServer server(options());
  TlsClient bad(server.connect(), TLS1_3_VERSION);
  bad.send("GET /echo\r\n\r\n");
  EXPECT_EQ(bad.read_answer().status, 400);
  TlsClient client(server.connect(), TLS1_3_VERSION);
  client.send(get("/held"));
  const std::shared_ptr<Exchange> held = server.held();
  std::atomic<int> calls{0};
  held->on_closed([&] { ++calls; });
  client.close();
  EXPECT_TRUE(eventually([&] { return calls == 1; }, 1s));
}

TEST_F(HttpTls, ClientsThatDoNotSpeakItAreDropped) {
  Options limited = options();
  limited.header_timeout = 100ms;
  TestServer server(limited);
  RawClient plain = server.connect();
  plain.send(get("/echo"));
  EXPECT_NE(plain.read_to_end(), std::nullopt);
  RawClient silent = server.connect();
  EXPECT_NE(silent.read_to_end(2s), std::nullopt);
  EXPECT_TRUE(eventually([&] { return server.server().statistics().open_connections == 0; }));
}

TEST_F(HttpTls, WrongFilesAreNamed) {
  Options missing = options();
  missing.tls_certificate = "no-such-file";
  EXPECT_NE(start_error(missing).find("no-such-file"), std::string::npos);
  Options text = options();
  std::ofstream(folder_ / "text") << "no key";
  text.tls_key = (folder_ / "text").string();
  EXPECT_NE(start_error(text).find(text.tls_key), std::string::npos);
  Options other = options();
  write_key_and_certificate(folder_ / "other-key", folder_ / "other-certificate");
  other.tls_key = (folder_ / "other-key").string();
  EXPECT_NE(start_error(other).find("mismatch"), std::string::npos) << start_error(other);
}

}  // namespace
}  // namespace kipp::http::testing
