// Files of sdk/ that the programs carry in them, so that they serve and print what they were built with. The
// definitions are generated (sb_embed in cmake/sandbar.cmake; the list is in cmake/modules.cmake). Constant, any
// thread.
//
//   std::string guide = assets::Guide("http://127.0.0.1:8787");
#pragma once

#include <string>
#include <string_view>

namespace sandbar::assets {

extern const std::string_view kLlmsTxt;      // sdk/llms.txt
extern const std::string_view kOpenApiJson;  // sdk/openapi.json
extern const std::string_view kSandbarPy;    // sdk/python/sandbar.py

// sdk/llms.txt with the address of a server in its examples.
std::string Guide(std::string_view url);

}  // namespace sandbar::assets
