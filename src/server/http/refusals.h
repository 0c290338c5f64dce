// What a connection refuses by itself, whatever the request says.
#pragma once

#include "server/http/response.h"

namespace kipp::http {

// Named, not temporaries of a co_await: g++ 12 destroys aggregates in such an expression twice.
inline const Refusal kTooManyConnections{503, "too_many_connections",
                                         "The server has as many connections as it allows. Try again later."};
inline const Refusal kHeadersCutShort{400, "request_cut_short",
                                      "The connection ended within the headers of a request."};
inline const Refusal kHeadersTooSlow{408, "request_timeout", "The headers of the request took too long."};
inline const Refusal kBodyCutShort{400, "request_cut_short", "The connection ended within the body of a request."};
inline const Refusal kClientClosed{400, "client_closed_request",
                                   "The connection was closed for sending before the answer was made."};
inline const Refusal kBodyTooSlow{408, "request_timeout", "The body of the request took too long."};
inline const Refusal kNoKey{401, "invalid_api_key", "An API key is needed, as in: Authorization: Bearer KEY"};

}  // namespace kipp::http
